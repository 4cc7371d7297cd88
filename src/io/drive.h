/* What a drive can do for us: direct reads of records in random order, and what the system says
 * about the drive and its file system. For `plan` and `doctor`. */
#ifndef SL_IO_DRIVE_H
#define SL_IO_DRIVE_H

#include "io/reader.h"

#define SL_DRIVE_TOTAL_BYTES_MAX (64 * SL_MIB)

typedef struct sl_drive_info {
    /* What was measured. Times include everything from submitting a read to seeing it done, with
     * `depth` reads in flight. */
    uint64_t record_bytes; /* of one read: as asked, or the whole of a file that is shorter */
    uint32_t depth;        /* as asked, or less where the file has not that many records */
    uint32_t n_reads;
    uint64_t read_bytes;
    uint64_t bytes_per_second;
    uint32_t latency_p50_us, latency_p90_us;
    sl_reader_kind reader; /* io_uring where it can be had */

    bool direct;              /* direct I/O is true here (sl_file_probe_direct) */
    char not_direct_why[160]; /* "" when direct */

    char file_system[32]; /* "ext4"; "fuse.sshfs"; a number in hexadecimal where no name is known */
    bool is_network;      /* NFS, SMB, 9p, ceph, or any file system served by a process (FUSE) */
    char device[64];      /* "nvme0n1p2"; "" where there is no block device or it is not known */
    int8_t rotational; /* 1 yes, 0 no, -1 unknown. Virtual disks often claim it: go by the speed */
} sl_drive_info;

/* Bytes of arena that sl_drive_probe uses at most. Pure. */
uint64_t sl_drive_probe_bytes(uint64_t record_bytes, uint32_t depth);

/* Read up to total_bytes_max (<= SL_DRIVE_TOTAL_BYTES_MAX) of the file in records of record_bytes
 * (a multiple of 4096, at most total_bytes_max), spread over the whole file, each once, in an order
 * that is scattered and always the same; depth reads in flight. Where direct I/O is not to be had,
 * the file's pages are dropped first, the reads are buffered and out says why; their pages are
 * dropped again. The arena gets back what was used. Errors: SL_ERR_ARGUMENT (also: an empty file),
 * SL_ERR_MISSING, SL_ERR_IO, SL_ERR_MEMORY. */
SL_MUST_USE sl_status sl_drive_probe(const char *path, uint64_t record_bytes, uint32_t depth,
                                     uint64_t total_bytes_max, sl_arena *arena, sl_drive_info *out,
                                     sl_error *err);

/* Only what the system says: file_system, is_network, device, rotational. Never fails: what cannot
 * be found out is left empty or unknown. */
void sl_drive_describe(const char *path, sl_drive_info *out);

#endif
