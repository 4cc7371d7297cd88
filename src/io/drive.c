/* Measuring a drive, and describing it from statfs, /proc/self/mountinfo and /sys. */
#define _GNU_SOURCE
#include "io/drive.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"

/* ---- what the system says ------------------------------------------------------------------ */

/* Magic numbers of statfs that linux/magic.h may lack are written out. */
static const struct {
    uint32_t magic;
    bool is_network;
    const char *name;
} file_systems[] = {
    {EXT4_SUPER_MAGIC, false, "ext4"},   {XFS_SUPER_MAGIC, false, "xfs"},
    {BTRFS_SUPER_MAGIC, false, "btrfs"}, {F2FS_SUPER_MAGIC, false, "f2fs"},
    {0xca451a4e, false, "bcachefs"},     {0x2fc12fc1, false, "zfs"},
    {0x2011bab0, false, "exfat"},        {0x7366746e, false, "ntfs3"},
    {MSDOS_SUPER_MAGIC, false, "vfat"},  {OVERLAYFS_SUPER_MAGIC, false, "overlay"},
    {SQUASHFS_MAGIC, false, "squashfs"}, {TMPFS_MAGIC, false, "tmpfs"},
    {RAMFS_MAGIC, false, "ramfs"},       {NFS_SUPER_MAGIC, true, "nfs"},
    {0xff534d42, true, "cifs"},          {0xfe534d42, true, "smb2"},
    {0x00c36400, true, "ceph"},          {V9FS_MAGIC, true, "9p"},
    {0x65735546, true, "fuse"},
};

/* Up to cap - 1 bytes of a small file, NUL-terminated; false when it cannot be read. */
static bool read_text(const char *path, char *text, size_t cap) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, cap - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* Read /proc/self/mountinfo line by line: "id parent major:minor root point options... - type
 * source options". Lines that are longer than the buffer are cut, which loses only their end. */
typedef struct mount_lines {
    int fd;
    size_t n;
    char text[8192];
} mount_lines;

/* The next line, without its newline, or NULL. */
static char *next_line(mount_lines *m, size_t *used) {
    memmove(m->text, m->text + *used, m->n - *used);
    m->n -= *used;
    for (;;) {
        char *end = memchr(m->text, '\n', m->n);
        if (end || m->n == sizeof(m->text) - 1) {
            *used = end ? (size_t)(end - m->text) + 1 : m->n;
            m->text[end ? *used - 1 : *used] = '\0';
            return m->text;
        }
        ssize_t got = read(m->fd, m->text + m->n, sizeof(m->text) - 1 - m->n);
        if (got <= 0)
            return NULL;
        m->n += (size_t)got;
    }
}

/* The third word of a line: the device number that stat gives for the files of the mount. */
static bool read_device(const char *line, dev_t *dev) {
    for (int i = 0; i < 2; i++) {
        if (!(line = strchr(line, ' ')))
            return false;
        line++;
    }
    char *end;
    unsigned long major_number = strtoul(line, &end, 10);
    if (*end != ':')
        return false;
    unsigned long minor_number = strtoul(end + 1, &end, 10);
    *dev = makedev((unsigned)major_number, (unsigned)minor_number);
    return *end == ' ';
}

/* The type and source of the mount whose device number is dev. */
static bool find_mount(dev_t dev, char *type, size_t type_cap, char *source, size_t source_cap) {
    mount_lines m = {.fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC)};
    if (m.fd < 0)
        return false;
    bool found = false;
    size_t used = 0;
    char *line;
    while (!found && (line = next_line(&m, &used))) {
        dev_t its_dev;
        char *rest = strstr(line, " - ");
        if (!rest || !read_device(line, &its_dev) || its_dev != dev)
            continue;
        char *save = NULL;
        const char *word = strtok_r(rest + 3, " ", &save);
        (void)snprintf(type, type_cap, "%s", word ? word : "");
        word = strtok_r(NULL, " ", &save);
        (void)snprintf(source, source_cap, "%s", word ? word : "");
        found = word != NULL;
    }
    (void)close(m.fd);
    return found;
}

/* Name and kind of a block device. */
static void describe_device(dev_t dev, sl_drive_info *out) {
    char path[128], target[256];
    (void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major(dev), minor(dev));
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    if (n <= 0)
        return;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    (void)snprintf(out->device, sizeof(out->device), "%.63s", slash ? slash + 1 : target);
    // A partition has no queue of its own: the disk above it has.
    static const char *const places[] = {"queue", "../queue"};
    for (size_t i = 0; i < SL_COUNT(places) && out->rotational < 0; i++) {
        char text[8];
        (void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s/rotational", major(dev),
                       minor(dev), places[i]);
        if (read_text(path, text, sizeof(text)))
            out->rotational = text[0] == '1';
    }
}

void sl_drive_describe(const char *path, sl_drive_info *out) {
    struct statfs fs;
    struct stat st;
    char type[sizeof(out->file_system)], source[256];
    out->file_system[0] = '\0';
    out->is_network = false;
    out->device[0] = '\0';
    out->rotational = -1;
    if (statfs(path, &fs) != 0 || stat(path, &st) != 0)
        return;
    (void)snprintf(out->file_system, sizeof(out->file_system), "0x%x", (unsigned)fs.f_type);
    for (size_t i = 0; i < SL_COUNT(file_systems); i++) {
        if (file_systems[i].magic == (uint32_t)fs.f_type) {
            (void)snprintf(out->file_system, sizeof(out->file_system), "%s", file_systems[i].name);
            out->is_network = file_systems[i].is_network;
        }
    }
    if (major(st.st_dev) != 0)
        describe_device(st.st_dev, out);
    // The mount table knows finer names (fuse.sshfs), and the device under a btrfs. A subvolume has
    // a number of its own that is not in the table: then the name by magic number stays.
    if (find_mount(st.st_dev, type, sizeof(type), source, sizeof(source))) {
        memcpy(out->file_system, type, sizeof(type));
        if (out->device[0] == '\0' && strncmp(source, "/dev/", 5) == 0 && stat(source, &st) == 0 &&
            S_ISBLK(st.st_mode))
            describe_device(st.st_rdev, out);
    }
}

/* ---- what can be measured ------------------------------------------------------------------ */

/* One read in flight and when it was submitted. */
typedef struct timed_read {
    sl_read read;
    uint64_t start_ns;
} timed_read;

typedef struct probe {
    sl_reader *reader;
    timed_read *reads;      /* [depth] */
    uint8_t *block;         /* [depth][record_bytes] */
    uint32_t *latencies_us; /* [n_reads] */
    uint32_t n_done;
    uint64_t n_records; /* in the file; the last may be short */
    uint64_t step; /* the i-th read is of place (i * step) mod n_reads, spread over the records */
} probe;

static uint64_t greatest_divisor(uint64_t a, uint64_t b) {
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* About 0.38 n, and no divisor in common with n: visits every place once, neighbours far apart. */
static uint64_t scattering_step(uint64_t n) {
    uint64_t step = n * 382 / 1000 + 1;
    while (greatest_divisor(step, n) != 1)
        step++;
    return step;
}

static void sort(uint32_t *values, uint32_t n) {
    for (uint32_t gap = n / 2; gap > 0; gap /= 2) {
        for (uint32_t i = gap; i < n; i++) {
            uint32_t value = values[i], at = i;
            for (; at >= gap && values[at - gap] > value; at -= gap)
                values[at] = values[at - gap];
            values[at] = value;
        }
    }
}

static void submit(probe *p, const sl_file *file, const sl_drive_info *info, uint32_t i) {
    timed_read *t = &p->reads[i % info->depth];
    uint64_t place = (uint64_t)i * p->step % info->n_reads;
    t->read = (sl_read){.fd = file->fd,
                        .n_bytes = (uint32_t)info->record_bytes,
                        .offset = place * (p->n_records / info->n_reads) * info->record_bytes,
                        .buf = p->block + (i % info->depth) * info->record_bytes};
    t->start_ns = sl_clock_ns();
    sl_reader_submit(p->reader, &t->read);
}

static sl_status collect(probe *p, sl_drive_info *info, uint32_t i, const char *path,
                         sl_error *err) {
    timed_read *t = &p->reads[i % info->depth];
    sl_reader_wait(p->reader, &t->read);
    p->latencies_us[p->n_done++] = (uint32_t)((sl_clock_ns() - t->start_ns) / 1000);
    if (t->read.result < 0)
        return sl_fail_errno(err, SL_ERR_IO, -t->read.result, "'%s': reading %u bytes at %llu",
                             path, t->read.n_bytes, (unsigned long long)t->read.offset);
    info->read_bytes += (uint64_t)t->read.result;
    return SL_OK;
}

static sl_status measure(probe *p, const sl_file *file, const char *path, sl_drive_info *info,
                         sl_error *err) {
    uint64_t start = sl_clock_ns();
    for (uint32_t i = 0; i < info->n_reads; i++) {
        sl_status status;
        if (i >= info->depth && (status = collect(p, info, i - info->depth, path, err)))
            return status;
        submit(p, file, info, i);
    }
    for (uint32_t i = info->n_reads - info->depth; i < info->n_reads; i++) {
        sl_status status = collect(p, info, i, path, err);
        if (status)
            return status;
    }
    uint64_t ns = SL_MAX(sl_clock_ns() - start, (uint64_t)1);
    info->bytes_per_second = (uint64_t)((double)info->read_bytes * 1e9 / (double)ns);
    sort(p->latencies_us, info->n_reads);
    info->latency_p50_us = p->latencies_us[(info->n_reads - 1) / 2];
    info->latency_p90_us = p->latencies_us[(info->n_reads - 1) * 9 / 10];
    return SL_OK;
}

/* Open directly where that is true; otherwise buffered, saying why. */
static sl_status open_best(const char *path, sl_file *file, sl_drive_info *info, sl_error *err) {
    sl_error why;
    sl_status status = sl_file_open(path, true, file, &why);
    if (status == SL_OK) {
        status = sl_file_probe_direct(file, &info->direct, &why);
        if (status == SL_OK && info->direct)
            return SL_OK;
        if (status == SL_OK)
            (void)sl_fail(&why, SL_ERR_UNSUPPORTED,
                          "direct reads of this file system (%s) go "
                          "through the page cache",
                          info->file_system);
        sl_file_close(file);
    } else if (status != SL_ERR_UNSUPPORTED) {
        if (err)
            *err = why;
        return status;
    }
    (void)snprintf(info->not_direct_why, sizeof(info->not_direct_why), "%.159s", why.message);
    if ((status = sl_file_open(path, false, file, err)))
        return status;
    if ((status = sl_file_drop_cache(file->fd, err)))
        sl_file_close(file);
    return status;
}

static uint64_t reader_bytes_most(uint32_t depth) {
    return SL_MAX(sl_reader_bytes(SL_READER_URING, depth), sl_reader_bytes(SL_READER_PREAD, depth));
}

uint64_t sl_drive_probe_bytes(uint64_t record_bytes, uint32_t depth) {
    uint64_t n_reads_max = SL_DRIVE_TOTAL_BYTES_MAX / SL_MAX(record_bytes, SL_PAGE);
    return depth * (record_bytes + sizeof(timed_read)) + SL_PAGE + n_reads_max * sizeof(uint32_t) +
           reader_bytes_most(depth) + 64;
}

/* Everything that depends on the open file. */
static sl_status probe_file(const sl_file *file, const char *path, uint64_t total_bytes_max,
                            sl_arena *arena, sl_drive_info *info, sl_error *err) {
    if (file->bytes == 0)
        return sl_fail(err, SL_ERR_ARGUMENT, "'%s' is empty: there is nothing to read", path);
    info->record_bytes = SL_MIN(info->record_bytes, SL_ALIGN_UP(file->bytes, SL_PAGE));
    probe p = {.n_records = SL_MAX(file->bytes / info->record_bytes, (uint64_t)1)};
    info->n_reads = (uint32_t)SL_MIN(p.n_records, total_bytes_max / info->record_bytes);
    info->depth = SL_MIN(info->depth, info->n_reads);
    p.step = scattering_step(info->n_reads);
    size_t block_bytes = (size_t)(info->depth * info->record_bytes);
    p.block = sl_arena_alloc(arena, block_bytes, SL_PAGE);
    p.reads = sl_arena_alloc(arena, info->depth * sizeof(*p.reads), _Alignof(timed_read));
    p.latencies_us = sl_arena_alloc(arena, info->n_reads * sizeof(uint32_t), _Alignof(uint32_t));
    if (!p.block || !p.reads || !p.latencies_us)
        return sl_arena_full(arena, block_bytes, err);
    memset(p.reads, 0, info->depth * sizeof(*p.reads));
    info->reader = sl_reader_uring_works() ? SL_READER_URING : SL_READER_PREAD;
    sl_status status = sl_reader_open(info->reader, info->depth, arena, &p.reader, err);
    if (status)
        return status;
    status = measure(&p, file, path, info, err);
    sl_reader_close(p.reader);
    return status;
}

sl_status sl_drive_probe(const char *path, uint64_t record_bytes, uint32_t depth,
                         uint64_t total_bytes_max, sl_arena *arena, sl_drive_info *out,
                         sl_error *err) {
    memset(out, 0, sizeof(*out));
    if (record_bytes == 0 || record_bytes % SL_PAGE != 0 || record_bytes > total_bytes_max ||
        total_bytes_max > SL_DRIVE_TOTAL_BYTES_MAX || depth < 1 || depth > SL_READER_DEPTH_MAX)
        return sl_fail(err, SL_ERR_ARGUMENT,
                       "probing a drive: records of %llu bytes, %llu bytes in total, depth %u",
                       (unsigned long long)record_bytes, (unsigned long long)total_bytes_max,
                       depth);
    out->record_bytes = record_bytes;
    out->depth = depth;
    sl_drive_describe(path, out);
    sl_file file;
    sl_status status = open_best(path, &file, out, err);
    if (status)
        return status;
    size_t mark = sl_arena_mark(arena);
    status = probe_file(&file, path, total_bytes_max, arena, out, err);
    sl_arena_reset(arena, mark);
    if (!file.direct && !status)
        status = sl_file_drop_cache(file.fd, err);
    sl_file_close(&file);
    return status;
}
