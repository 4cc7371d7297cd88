/* The JSON object that a chat template renders, in a buffer of fixed size.
 *
 * Nothing grows: what does not fit sets `full` and leaves the buffer as it was. A few bytes are
 * kept free so that a message that was begun can always be ended. */
#ifndef SL_CLI_REQUEST_H
#define SL_CLI_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cli_buffer {
    char *bytes;
    size_t n, cap;
    bool full;
} cli_buffer;

void cli_buffer_add(cli_buffer *buffer, const char *bytes, size_t n);

/* {"add_generation_prompt": true, "enable_thinking": think, "messages": [ */
void cli_request_begin(cli_buffer *request, bool think);
/* One message. Bytes that are not UTF-8 become U+FFFD; *replaced (may be NULL) counts them. On full
 * the whole message is left out. */
void cli_request_message(cli_buffer *request, const char *role, const char *text, size_t n,
                         size_t *replaced);
/* A message in parts of whole characters. False from part: full, that part is left out. */
void cli_request_message_begin(cli_buffer *request, const char *role);
bool cli_request_message_part(cli_buffer *request, const char *text, size_t n);
void cli_request_message_end(cli_buffer *request);
/* Close the object, and open it again for more messages. */
void cli_request_end(cli_buffer *request);
void cli_request_reopen(cli_buffer *request);

/* The value of a member of the outermost object: *value points into text, *n bytes. False when
 * there is none, also where the text is no JSON object (which the library then says better). */
bool cli_request_member(const char *text, size_t len, const char *key, const char **value,
                        size_t *n);

/* Give the object in request a first member, unless it has one of that name. False on full. */
bool cli_request_default(cli_buffer *request, const char *key, const char *value);

#endif
