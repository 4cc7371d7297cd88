/* Readiness: see notify.h. */
#include "serve/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int serve_notify_open(void) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    if (n == 0 || n >= sizeof(address.sun_path))
        return -1;
    memcpy(address.sun_path, path, n);
    if (path[0] == '@') // the abstract names of Linux begin with a NUL
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address,
                           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

void serve_notify(int socket, const char *state) {
    // write() and not sendto(): a connected socket needs no more, and nothing else is left open.
    ssize_t n = socket >= 0 ? write(socket, state, strlen(state)) : 0;
    (void)n;
}
