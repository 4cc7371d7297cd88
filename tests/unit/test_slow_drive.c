/* A drive that turns slow, as readers inject it: reads come in one by one, in whole, whoever waits sleeps, and the
 * rate that is measured is the rate that there was. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "helpers/scratch.h"
#include "io/reader.h"

#define N_READS 8u
#define READ_BYTES 65536u
#define DELAY 0.02

static uint8_t data[N_READS * READ_BYTES], got[N_READS * READ_BYTES];
static sl_file file;
static sl_arena arena;
static sl_reader *reader;

static int set_up(void **state) {
    (void)state;
    const char *path = test_scratch_path("data");
    sl_error err;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, sizeof(data), f), sizeof(data));
    assert_int_equal(fclose(f), 0);
    assert_int_equal(sl_file_open(path, false, &file, &err), SL_OK);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    sl_file_close(&file);
    return 0;
}

/* False where this reader cannot be had. */
static bool open_reader(sl_reader_kind kind) {
    sl_error err;
    if (kind == SL_READER_URING && !sl_reader_uring_works()) {
        print_message("skipped: this system allows no io_uring\n");
        return false;
    }
    assert_int_equal(sl_arena_map(&arena, "ring", sl_reader_bytes(kind, N_READS), &err), SL_OK);
    assert_int_equal(sl_reader_open(kind, N_READS, &arena, &reader, &err), SL_OK);
    memset(got, 0, sizeof(got));
    return true;
}

static void close_reader(void) {
    sl_reader_close(reader);
    sl_arena_unmap(&arena);
}

#define FOR_EACH_READER(kind)                                                                      \
    for (sl_reader_kind kind = SL_READER_URING; kind <= SL_READER_PREAD; kind++)                   \
        if (open_reader(kind))

static void submit(sl_read *reads, uint32_t n) {
    memset(reads, 0, n * sizeof(*reads));
    for (uint32_t i = 0; i < n; i++) {
        reads[i] = (sl_read){.fd = file.fd,
                             .n_bytes = READ_BYTES,
                             .offset = i * READ_BYTES,
                             .buf = got + i * READ_BYTES};
        sl_reader_submit(reader, &reads[i]);
    }
}

static void wait_all(sl_read *reads, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        sl_reader_wait(reader, &reads[i]);
        assert_int_equal(reads[i].result, READ_BYTES);
    }
    assert_memory_equal(got, data, n * READ_BYTES);
}

static double cpu_seconds(void) {
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void reads_come_in_one_by_one(void **state) {
    (void)state;
    FOR_EACH_READER(kind) {
        sl_read reads[N_READS];
        sl_reader_slow(reader, 3, DELAY);
        submit(reads, 2);
        wait_all(reads, 2); // these come before it
        double begin = sl_now(), cpu = cpu_seconds();
        submit(reads, N_READS);
        for (uint32_t i = 0; i < N_READS; i++) {
            sl_reader_wait(reader, &reads[i]);
            assert_true(sl_now() - begin >= DELAY);
        }
        wait_all(reads, N_READS);
        double seconds = sl_now() - begin;
        assert_true(seconds >= N_READS * DELAY);
        cpu = cpu_seconds() - cpu;
        printf("%s: %u reads in %.3f s, %.4f s of a processor\n", sl_reader_kind_name(kind),
               N_READS, seconds, cpu);
        assert_true(cpu < seconds / 4);
        // Fast again, also for those under way.
        submit(reads, N_READS);
        sl_reader_slow(reader, 0, 0);
        begin = sl_now();
        wait_all(reads, N_READS);
        assert_true(sl_now() - begin < N_READS * DELAY);
        close_reader();
    }
}

static void closing_waits_for_reads_that_are_held(void **state) {
    (void)state;
    FOR_EACH_READER(kind) {
        sl_read reads[N_READS];
        sl_reader_slow(reader, 1, DELAY);
        submit(reads, N_READS);
        close_reader(); // waits for all
        for (uint32_t i = 0; i < N_READS; i++)
            assert_true(reads[i].done && !reads[i].busy);
        assert_memory_equal(got, data, sizeof(data));
    }
}

static void a_poll_finds_what_is_due(void **state) {
    (void)state;
    FOR_EACH_READER(kind) {
        sl_read reads[N_READS];
        uint32_t n_done = 0;
        double begin = sl_now();
        sl_reader_slow(reader, 1, DELAY);
        submit(reads, N_READS);
        while (n_done < N_READS) {
            usleep(500);
            sl_reader_poll(reader);
            n_done = 0;
            for (uint32_t i = 0; i < N_READS; i++)
                n_done += reads[i].done;
            assert_true(n_done <= (sl_now() - begin) / DELAY);
            assert_int_equal(sl_reader_free(reader), n_done);
        }
        wait_all(reads, N_READS);
        close_reader();
    }
}

static void faults_strike_on_a_slow_drive_as_well(void **state) {
    (void)state;
    FOR_EACH_READER(kind) {
        sl_read reads[4];
        sl_reader_slow(reader, 1, DELAY / 4);
        sl_reader_inject(reader, SL_FAULT_EIO, 2);
        submit(reads, 4);
        for (uint32_t i = 0; i < 4; i++) {
            sl_reader_wait(reader, &reads[i]);
            assert_int_equal(reads[i].result < 0, i == 1);
        }
        close_reader();
    }
}

/* The rate while reading: of a slow drive what it was slowed down to. What was under way while nobody looked, and
 * the time in between, say nothing. */
static void the_rate_is_measured(void **state) {
    (void)state;
    FOR_EACH_READER(kind) {
        sl_read reads[N_READS];
        assert_int_equal(sl_reader_measured(reader).bytes, 0);
        sl_reader_slow(reader, 1, DELAY);
        for (uint32_t round = 1; round <= 2; round++) {
            usleep(100000); // nothing is under way
            submit(reads, N_READS);
            wait_all(reads, N_READS);
            sl_reader_rate r = sl_reader_measured(reader);
            assert_int_equal(r.bytes, round * N_READS * READ_BYTES);
            double rate = (double)r.bytes / r.seconds;
            printf("%s: %.0f bytes a second of %.0f\n", sl_reader_kind_name(kind), rate,
                   READ_BYTES / DELAY);
            assert_true(rate <= 1.01 * READ_BYTES / DELAY && rate > 0.5 * READ_BYTES / DELAY);
        }
        sl_reader_slow(reader, 0, 0);
        sl_reader_rate before = sl_reader_measured(reader);
        submit(reads, 1);
        usleep(100000);
        sl_reader_wait(reader, &reads[0]);
        submit(reads, 1);
        usleep(100000);
        sl_reader_poll(reader);
        assert_true(reads[0].done);
        assert_int_equal(sl_reader_measured(reader).bytes, before.bytes);
        assert_true(sl_reader_measured(reader).seconds <= before.seconds);
        close_reader();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_come_in_one_by_one),
        cmocka_unit_test(closing_waits_for_reads_that_are_held),
        cmocka_unit_test(a_poll_finds_what_is_due),
        cmocka_unit_test(faults_strike_on_a_slow_drive_as_well),
        cmocka_unit_test(the_rate_is_measured),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
