/* The C library's and the system's own ways, as a program of C has them: what streams are measured beside.
 *
 * A line of words with tabs between comes in, a line goes out: the nanoseconds that it took and how many units were done (pages, calls or
 * bytes, as is said at each), or "error" and why. Compiled with cc -O2, in a process with one thread, where stdio's locks cost least.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096

/* What is read must not be optimized away. */
static volatile uint64_t sink;

static const char *wrong;

#define NEED(condition, what)   \
    do {                    \
        if (!(condition)) { \
            wrong = what;   \
            return 0;       \
        }               \
    } while (0)

static uint64_t now(void)
{
    struct timespec t;
    /* What others take of the processor is not in it. */
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The compiler takes it that the memory is looked at. */
static void look(void *memory)
{
    __asm__ volatile("" : : "r"(memory) : "memory");
}

/* Page-aligned memory of so many bytes, each page in place. */
static unsigned char *pages(size_t bytes)
{
    void *memory;
    if (posix_memalign(&memory, PAGE, bytes + PAGE) != 0)
        return NULL;
    memset(memory, 1, bytes + PAGE);
    return memory;
}

/* Table 4. Between two regions, from a region to one buffer, from one buffer to a region, between two buffers; the buffer begins so many
 * bytes behind a page. Units: pages. */
static uint64_t copies(const char *how, size_t bytes, size_t times, size_t offset)
{
    unsigned char *from = pages(bytes), *to = pages(bytes), *buffer = pages(PAGE), *other = pages(PAGE);
    NEED(from && to && buffer && other, "no memory");
    uint64_t begin = now();
    for (size_t i = 0; i < times; i++) {
        if (strcmp(how, "copy") == 0) {
            memcpy(to, from, bytes);
            look(to);
            continue;
        }
        for (size_t at = 0; at < bytes; at += PAGE) {
            if (strcmp(how, "copy_from_buf") == 0)
                memcpy(to + at, buffer + offset, PAGE);
            else if (strcmp(how, "copy_to_buf") == 0)
                memcpy(buffer + offset, from + at, PAGE);
            else
                memcpy(buffer + offset, other, PAGE);
            look(buffer);
        }
    }
    uint64_t took = now() - begin;
    free(from);
    free(to);
    free(buffer);
    free(other);
    return took;
}

/* Maps the file, touches each page, unmaps it: to read, to write, or to write when it was first made empty and as long again. Units: pages. */
static uint64_t touches(const char *how, const char *path, size_t times, size_t *units)
{
    int writes = strcmp(how, "touch_read") != 0, grows = strcmp(how, "touch_new") == 0;
    int fd = open(path, writes ? O_RDWR : O_RDONLY);
    struct stat st;
    NEED(fd >= 0 && fstat(fd, &st) == 0, strerror(errno));
    size_t bytes = (size_t)st.st_size;
    uint64_t sum = 0, begin = now();
    for (size_t i = 0; i < times; i++) {
        if (grows)
            NEED(ftruncate(fd, 0) == 0 && ftruncate(fd, (off_t)bytes) == 0, strerror(errno));
        unsigned char *at = mmap(NULL, bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
        NEED(at != MAP_FAILED, strerror(errno));
        for (size_t place = 0; place < bytes; place += PAGE) {
            if (writes)
                ((volatile unsigned char *)at)[place] = 1;
            else
                sum += ((volatile unsigned char *)at)[place];
        }
        NEED(munmap(at, bytes) == 0, strerror(errno));
    }
    uint64_t took = now() - begin;
    sink = sum;
    close(fd);
    *units = times * (bytes / PAGE);
    return took;
}

/* Reads or writes the whole file again and again, a page at a time from and to one aligned page; write_new makes it empty before. Units: pages. */
static uint64_t whole(const char *how, const char *path, size_t bytes, size_t times)
{
    int reads = strcmp(how, "read_file") == 0;
    int fd = open(path, reads ? O_RDONLY : O_RDWR);
    unsigned char *page = pages(PAGE);
    NEED(fd >= 0 && page, strerror(errno));
    uint64_t begin = now();
    for (size_t i = 0; i < times; i++) {
        if (strcmp(how, "write_new") == 0)
            NEED(ftruncate(fd, 0) == 0, strerror(errno));
        NEED(lseek(fd, 0, SEEK_SET) == 0, strerror(errno));
        for (size_t at = 0; at < bytes; at += PAGE)
            NEED((reads ? read(fd, page, PAGE) : write(fd, page, PAGE)) == PAGE, strerror(errno));
    }
    uint64_t took = now() - begin;
    free(page);
    close(fd);
    return took;
}

/* Reads so many bytes of the file's beginning, and goes back there; of 0 bytes only the latter. Units: calls. */
static uint64_t beginnings(const char *path, size_t bytes, size_t times)
{
    int fd = open(path, O_RDONLY);
    unsigned char *buffer = pages(bytes);
    NEED(fd >= 0 && buffer, strerror(errno));
    uint64_t begin = now();
    for (size_t i = 0; i < times; i++) {
        if (bytes > 0)
            NEED(read(fd, buffer, bytes) == (ssize_t)bytes, strerror(errno));
        NEED(lseek(fd, 0, SEEK_SET) == 0, strerror(errno));
    }
    uint64_t took = now() - begin;
    free(buffer);
    close(fd);
    return took;
}

/* fread(3) of records, to the end. Units: records. */
static uint64_t records(const char *path, size_t bytes, size_t *units)
{
    uint64_t begin = now(), sum = 0;
    size_t count = 0;
    FILE *file = fopen(path, "r");
    unsigned char *buffer = pages(bytes);
    NEED(file && buffer, strerror(errno));
    while (fread(buffer, 1, bytes, file) == bytes) {
        sum += buffer[0];
        count++;
    }
    NEED(!ferror(file), "fread");
    fclose(file);
    uint64_t took = now() - begin;
    free(buffer);
    sink = sum;
    *units = count;
    return took;
}

/* getline(3), to the end. Units: lines. */
static uint64_t lines(const char *path, size_t *units)
{
    uint64_t begin = now(), sum = 0;
    size_t count = 0, room = 0;
    char *line = NULL;
    FILE *file = fopen(path, "r");
    NEED(file, strerror(errno));
    for (ssize_t n; (n = getline(&line, &room, file)) >= 0; count++)
        sum += (uint64_t)n;
    NEED(!ferror(file), "getline");
    fclose(file);
    uint64_t took = now() - begin;
    free(line);
    sink = sum;
    *units = count;
    return took;
}

/* read(2) of so many bytes into one aligned buffer, to the end. Units: bytes. */
static uint64_t reads(const char *path, size_t bytes, size_t *units)
{
    unsigned char *buffer = pages(bytes);
    NEED(buffer, "no memory");
    uint64_t begin = now(), sum = 0;
    size_t all = 0;
    int fd = open(path, O_RDONLY);
    NEED(fd >= 0, strerror(errno));
    ssize_t n;
    while ((n = read(fd, buffer, bytes)) > 0) {
        sum += buffer[0];
        all += (size_t)n;
    }
    NEED(n == 0, strerror(errno));
    close(fd);
    uint64_t took = now() - begin;
    free(buffer);
    sink = sum;
    *units = all;
    return took;
}

/* copy_file_range(2) to a new file, as cp(1) and cat(1) do. Units: bytes. */
static uint64_t file_to_file(const char *from, const char *to, size_t *units)
{
    uint64_t begin = now();
    size_t all = 0;
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    NEED(in >= 0 && out >= 0, strerror(errno));
    ssize_t n;
    while ((n = copy_file_range(in, NULL, out, NULL, (size_t)1 << 30, 0)) > 0)
        all += (size_t)n;
    NEED(n == 0, strerror(errno));
    close(in);
    NEED(close(out) == 0, strerror(errno));
    *units = all;
    return now() - begin;
}

static size_t number(char *const *words, int count, int at)
{
    return at < count ? (size_t)strtoull(words[at], NULL, 10) : 0;
}

static uint64_t asked(char *const *words, int count, size_t *units)
{
    const char *how = words[0], *path = count > 1 ? words[1] : "";
    if (strncmp(how, "copy", 4) == 0 && count == 4) {
        *units = number(words, count, 1) / PAGE * number(words, count, 2);
        return copies(how, number(words, count, 1), number(words, count, 2), number(words, count, 3));
    }
    if (strncmp(how, "touch_", 6) == 0 && count == 3)
        return touches(how, path, number(words, count, 2), units);
    if ((strcmp(how, "read_file") == 0 || strncmp(how, "write_", 6) == 0) && count == 4) {
        *units = number(words, count, 2) / PAGE * number(words, count, 3);
        return whole(how, path, number(words, count, 2), number(words, count, 3));
    }
    if (strcmp(how, "beginning") == 0 && count == 4) {
        *units = number(words, count, 3);
        return beginnings(path, number(words, count, 2), number(words, count, 3));
    }
    if (strcmp(how, "fread") == 0 && count == 3)
        return records(path, number(words, count, 2), units);
    if (strcmp(how, "getline") == 0 && count == 2)
        return lines(path, units);
    if (strcmp(how, "read") == 0 && count == 3)
        return reads(path, number(words, count, 2), units);
    if (strcmp(how, "file_to_file") == 0 && count == 3)
        return file_to_file(path, words[2], units);
    wrong = "no such measurement";
    return 0;
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        char *words[8], *rest = line;
        int count = 0;
        line[strcspn(line, "\n")] = '\0';
        while (count < 8 && (words[count] = strsep(&rest, "\t")) != NULL)
            count++;
        size_t units = 0;
        wrong = NULL;
        uint64_t took = asked(words, count, &units);
        if (wrong)
            printf("error %s\n", wrong);
        else
            printf("%llu %llu\n", (unsigned long long)took, (unsigned long long)units);
        fflush(stdout);
    }
    return 0;
}
