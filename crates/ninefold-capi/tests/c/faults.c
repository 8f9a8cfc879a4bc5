/*
 * faults DIR: what goes wrong with a file, a pipe or a disk is the error of the call that meets it, whichever interface that is of, and what
 * sflush said is in the file is there. It reports where no file system can be made that has little room.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

#define SIZE (4l << 20)

static char directory[4000], path[4096];
static unsigned char bytes[SIZE];

static Stream *opens(int flags, const char *module)
{
    int error = 1;
    Stream *s = sopen_by(path, flags, 0644, module, &error);
    CHECK(s != NULL, "%s, %d", module, error);
    CHECK(!strcmp(smodule(s), module), "%s, %s", module, smodule(s));
    return s;
}

/* A file of so many bytes, each of which tells its place. */
static void makes(long size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0, "%d", errno);
    fill(bytes, 0, (size_t)size);
    SAME(write(fd, bytes, (size_t)size), size);
    SAME(close(fd), 0);
}

static void in_a_child(void (*what)(void))
{
    int status = 0;
    pid_t pid = fork();
    CHECK(pid >= 0, "%d", errno);
    if (pid == 0) {
        alarm(60);
        what();
        _exit(0);
    }
    SAME(waitpid(pid, &status, 0), pid);
    SAME(status, 0);
}

/* Another program cuts what is read. */
static void cut_while_read(void)
{
    static const char *const modules[] = {"pread", "pread-random", "read-write", "read-write-random", "mmap"};
    unsigned char *region;
    long length, at;
    size_t n;
    for (n = 0; n < 5; n++) {
        Stream *s;
        makes(SIZE);
        s = opens(n < 2 || n == 4 ? O_RDONLY : O_RDWR, modules[n]);
        length = 1000;
        region = Salloc(s, SA_READ, &length);
        CHECK(region != NULL && length == 1000, "%ld", length);
        SAME(truncate(path, 5000), 0);
        CHECK(differs(region, 0, 1000) < 0, "%s", modules[n]);
        SAME(sfree(s, region), 0);
        /* What was read before is as it was then, and behind it is the end: no call makes data of what is gone. */
        for (at = 1000;; at += length) {
            length = 3000;
            region = salloc(s, &length);
            if (region == NULL)
                break;
            if (n < 4) {
                CHECK(differs(region, at, (size_t)length) < 0, "%s at %ld", modules[n], at);
                SAME(sfree(s, region), 0);
            } else if (at + length > 8192) {
                /* Zeros in the pages that are gone; who looked is told. */
                SAME(region[length - 1], 0);
                SAME(sfree(s, region), -EIO);
            } else {
                CHECK(differs(region, at, (size_t)(at + length > 5000 ? 5000 - at : length)) < 0, "%ld", at);
                SAME(sfree(s, region), 0);
            }
        }
        CHECK(length == 0 || (n == 4 && length == -EIO), "%s, %ld", modules[n], length);
        SAME(sgetc(s), EOF);
        SAME(sfread(bytes, 1, 10, s), 0);
        /* A part of it is there still. */
        length = 2000;
        region = sallocAt(s, &length, 4000, SEEK_SET);
        CHECK(region != NULL && length == 1000 && differs(region, 4000, 1000) < 0, "%s, %ld", modules[n], length);
        SAME(sfree(s, region), 0);
        SAME(sclose(s), 0);
    }
}

/* Another program cuts what is written: what comes goes to its place, or to the end. */
static void cut_while_written(void)
{
    static const char *const modules[] = {"pwrite", "read-write", "read-write-random", "append"};
    struct stat st;
    size_t n;
    for (n = 0; n < 4; n++) {
        int appends = n == 3;
        Stream *s;
        unlink(path);
        s = opens((n ? O_RDWR : O_WRONLY) | O_CREAT | (appends ? O_APPEND : 0), modules[n]);
        fill(bytes, 0, 10000);
        SAME(swrite(s, bytes, 10000), 10000);
        SAME(sflush(s), 0);
        SAME(truncate(path, 100), 0);
        SAME(swrite(s, "behind", 6), 6);
        SAME(sflush(s), 0);
        SAME(stat(path, &st), 0);
        SAME(st.st_size, appends ? 106 : 10006);
        SAME(sclose(s), 0);
        s = opens(O_RDONLY, "pread");
        SAME(sread(s, bytes, SIZE), st.st_size);
        CHECK(differs(bytes, 0, 100) < 0 && !memcmp(bytes + st.st_size - 6, "behind", 6), "%s", modules[n]);
        CHECK(appends || bytes[100] == 0, "%s", modules[n]);
        SAME(sclose(s), 0);
    }
}

#define ROOM (1l << 20)

/* Takes what room there is, but for some. */
static void takes(const char *filler, long leave)
{
    int fd = open(filler, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0, "%d", errno);
    while (write(fd, bytes, 4096) == 4096)
        ;
    SAME(errno, ENOSPC);
    SAME(ftruncate(fd, lseek(fd, 0, SEEK_END) - leave), 0);
    SAME(close(fd), 0);
}

/* What of the file is as it was written. */
static long whole(void)
{
    static unsigned char got[ROOM];
    int fd = open(path, O_RDONLY);
    long count = pread(fd, got, ROOM, 0);
    CHECK(count >= 0 && differs(got, 0, (size_t)count) < 0, "%lld", differs(got, 0, (size_t)count));
    SAME(close(fd), 0);
    return count;
}

/* Writes records by one of the interfaces until something goes wrong. */
static int writes(Stream *s, int how, long *at, long *flushed)
{
    unsigned char record[5000], *region;
    long length;
    int result = 0;
    for (;;) {
        fill(record, *at, sizeof record);
        switch (how) {
        case 0:
            length = sizeof record;
            region = Salloc(s, SA_WRITE, &length);
            if (region == NULL)
                return (int)length;
            memcpy(region, record, sizeof record);
            *at += (long)sizeof record;
            result = sfree(s, region);
            break;
        case 1:
            errno = 0;
            length = sfwrite(record, 1, sizeof record, s);
            result = length < 0 ? (int)length : -errno;
            *at += length > 0 ? length : 0;
            break;
        default:
            errno = 0;
            length = as_write(sfileno(s), record, sizeof record);
            result = length < 0 ? (int)length : length < (long)sizeof record ? -errno : 0;
            *at += length > 0 ? length : 0;
        }
        if (result == 0)
            result = sflush(s);
        if (result < 0)
            return result;
        *flushed = *at;
        CHECK(*at < ROOM, "no room is enough");
    }
}

/* A full disk: told by the call that meets it, and by each behind it; what is kept is written when there is room. */
static void full(void)
{
    static const char *const modules[] = {"pwrite", "read-write", "read-write-random", "append"};
    char filler[4200];
    long at, flushed, length;
    unsigned char *region;
    size_t n;
    int how, error;
    snprintf(filler, sizeof filler, "%s/filler", directory);
    for (n = 0; n < 4; n++)
        for (how = 0; how < 3; how++) {
            Stream *s;
            unlink(path);
            takes(filler, 100000);
            s = opens((n ? O_RDWR : O_WRONLY) | O_CREAT | (n == 3 ? O_APPEND : 0), modules[n]);
            at = flushed = 0;
            error = writes(s, how, &at, &flushed);
            SAME(error, -ENOSPC);
            CHECK(at >= flushed && flushed > 50000, "%s, %d: %ld, %ld", modules[n], how, flushed, at);
            CHECK(whole() >= flushed, "%s, %d: %ld of %ld", modules[n], how, whole(), flushed);
            /* An append of as_write is not taken where it is not written, so nothing may be left. */
            error = sflush(s);
            CHECK(error == -ENOSPC || (error == 0 && n == 3 && how == 2), "%s, %d: %d", modules[n], how, error);
            CHECK(whole() >= flushed, "%s, %d", modules[n], how);
            /* The stream's memory does not grow while nothing of it can be written. */
            for (length = 0; error < 0 && length >= 0;) {
                length = 100000;
                region = Salloc(s, SA_WRITE, &length);
                if (region != NULL) {
                    fill(region, at, 100000);
                    at += 100000;
                    sfree(s, region);
                    CHECK(at < SIZE, "");
                }
            }
            if (error < 0)
                SAME(length, -ENOSPC);
            SAME(unlink(filler), 0);
            SAME(sflush(s), 0);
            SAME(whole(), at);
            SAME(sclose(s), 0);

            /* Who closes is told what is lost by that. */
            unlink(path);
            takes(filler, 0);
            s = opens((n ? O_RDWR : O_WRONLY) | O_CREAT | (n == 3 ? O_APPEND : 0), modules[n]);
            SAME(swrite(s, bytes, 5000), 5000);
            SAME(sclose(s), -ENOSPC);
            SAME(unlink(filler), 0);
        }
    /* Holes are mapped: there is no room for them, which is an error or none, and no signal. */
    unlink(path);
    SAME(close(open(path, O_WRONLY | O_CREAT, 0644)), 0);
    SAME(truncate(path, 200000), 0);
    takes(filler, 0);
    {
        Stream *s = opens(O_RDONLY, "mmap");
        length = 200000;
        region = salloc(s, &length);
        CHECK(region != NULL && length == 200000 && region[0] == 0 && region[199999] == 0, "%ld", length);
        error = sfree(s, region);
        CHECK(error == 0 || error == -EIO, "%d", error);
        SAME(sclose(s), 0);
    }
}

static int says(const char *name, const char *what)
{
    int fd = open(name, O_WRONLY);
    int said = fd >= 0 && write(fd, what, strlen(what)) == (ssize_t)strlen(what);
    if (fd >= 0)
        close(fd);
    return said;
}

/* In a file system of little room, which nobody else sees. */
static void in_little_room(void)
{
    char options[64], users[64], groups[64];
    snprintf(users, sizeof users, "0 %d 1", (int)getuid());
    snprintf(groups, sizeof groups, "0 %d 1", (int)getgid());
    if (unshare(CLONE_NEWNS) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
            report("no mount namespace");
            return;
        }
        /* Files there are somebody's; where a user's namespace has no rights, nobody's. */
        if (!says("/proc/self/setgroups", "deny") || !says("/proc/self/uid_map", users) || !says("/proc/self/gid_map", groups)) {
            report("no mount namespace of a user's own");
            return;
        }
    }
    snprintf(options, sizeof options, "size=%ld", ROOM);
    if (mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0 || mount("none", directory, "tmpfs", 0, options) != 0) {
        report("no mount");
        return;
    }
    full();
}

static volatile sig_atomic_t heard;
static int over;

static void hears(int signal)
{
    (void)signal;
    heard = 1;
}

static void *interrupts(void *thread)
{
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        pthread_kill(*(pthread_t *)thread, SIGUSR1);
        sched_yield();
    }
    return NULL;
}

/* A stream on an end of a pipe, or of a pair of sockets; the other end is *other. */
static Stream *one_end(int sockets, int reads, int flags, int *other)
{
    int ends[2], error = 0;
    Stream *s;
    SAME(sockets ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends), 0);
    SAME(fcntl(ends[!reads], F_SETFL, flags | (sockets ? O_RDWR : 0)), 0);
    s = sdopen(ends[!reads], &error);
    CHECK(s != NULL, "%d", error);
    SAME(set_stream_mode(s, reads ? SA_READ : SA_WRITE), 0);
    SAME(close(ends[!reads]), 0);
    *other = ends[reads];
    return s;
}

/* Every way to read is ended by `number` where nothing comes, and whatever came before is there still. */
static void reads_in_vain(int sockets, int flags, int number)
{
    char record[8];
    int in;
    long length = 1;
    unsigned char *region;
    Stream *s = one_end(sockets, 1, flags, &in);
    CHECK(salloc(s, &length) == NULL && length == number, "%ld", length);
    CHECK(salloc_line(s, &length) == NULL && length == number, "%ld", length);
    SAME(sgetc(s), number);
    SAME(sread(s, record, 8), number);
    SAME(as_read(sfileno(s), record, 8), number);
    CHECK(sgets(record, 8, s) == NULL && errno == -number, "%d", errno);
    SAME(sfread(record, 8, 1, s), number);
    SAME(write(in, "abcde", 5), 5);
    length = 8;
    CHECK(salloc_full(s, &length) == NULL && length == number, "%ld", length);
    SAME(sposition(s), 0);
    CHECK(sgets(record, 8, s) == NULL && errno == -number, "%d", errno);
    /* Nothing is gone of an item that is not whole, with whole ones before it or without. */
    SAME(sfread(record, 8, 1, s), number);
    SAME(sposition(s), 0);
    SAME(sfread(record, 2, 4, s), 2);
    CHECK(!memcmp(record, "abcd", 4), "%.4s", record);
    SAME(sposition(s), 4);
    SAME(sfread(record, 2, 1, s), number);
    SAME(write(in, "fgh", 3), 3);
    SAME(sfread(record, 2, 2, s), 2);
    CHECK(!memcmp(record, "efgh", 4), "%.4s", record);
    /* That the other end is closed is no error, but the end. */
    SAME(write(in, "last", 4), 4);
    SAME(close(in), 0);
    length = 10;
    region = salloc_full(s, &length);
    CHECK(region != NULL && length == 4 && !memcmp(region, "last", 4), "%ld", length);
    SAME(sfree(s, region), 0);
    SAME(sgetc(s), EOF);
    SAME(sclose(s), 0);
}

/* Writes until there is no room, which `number` says; all that was taken comes out, once. */
static void writes_in_vain(int sockets, int flags, int number)
{
    static unsigned char got[SIZE];
    int out, error = 0;
    long length, at = 0, have = 0, n;
    unsigned char *region;
    Stream *s = one_end(sockets, 0, flags, &out);
    while (error == 0) {
        length = 1000;
        region = salloc(s, &length);
        if (region == NULL) {
            error = (int)length;
        } else {
            fill(region, at, 1000);
            at += 1000;
            error = sfree(s, region);
        }
        CHECK(at < SIZE, "");
    }
    SAME(error, number);
    SAME(sflush(s), number);
    while (have < at) {
        n = read(out, got + have, (size_t)(SIZE - have));
        CHECK(n > 0 || (n < 0 && errno == EINTR), "%d", errno);
        have += n > 0 ? n : 0;
        error = sflush(s);
        CHECK(error == 0 || error == number, "%d", error);
    }
    SAME(have, at);
    CHECK(differs(got, 0, (size_t)have) < 0, "%lld", differs(got, 0, (size_t)have));
    SAME(sclose(s), 0);
    SAME(close(out), 0);
}

static void not_waited_for(void)
{
    int sockets;
    for (sockets = 0; sockets < 2; sockets++) {
        reads_in_vain(sockets, O_NONBLOCK, -EAGAIN);
        writes_in_vain(sockets, O_NONBLOCK, -EAGAIN);
    }
}

static void interrupted(void)
{
    struct sigaction action;
    pthread_t self = pthread_self(), thread;
    sigset_t users;
    int sockets;
    memset(&action, 0, sizeof action);
    action.sa_handler = hears;
    SAME(sigaction(SIGUSR1, &action, NULL), 0);
    sigemptyset(&users);
    sigaddset(&users, SIGUSR1);
    SAME(pthread_sigmask(SIG_BLOCK, &users, NULL), 0);
    SAME(pthread_create(&thread, NULL, interrupts, &self), 0);
    SAME(pthread_sigmask(SIG_UNBLOCK, &users, NULL), 0);
    for (sockets = 0; sockets < 2; sockets++) {
        reads_in_vain(sockets, 0, -EINTR);
        writes_in_vain(sockets, 0, -EINTR);
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    SAME(pthread_join(thread, NULL), 0);
    CHECK(heard, "");
}

static void into_nothing(int sockets)
{
    char got[8];
    int out, fd;
    long length = 1l << 20;
    Stream *s = one_end(sockets, 0, 0, &out);
    SAME(sputs("first", s), 0);
    SAME(sflush(s), 0);
    SAME(read(out, got, 8), 5);
    SAME(close(out), 0);
    fd = sfileno(s);
    SAME(sputs("second", s), 0);
    SAME(sflush(s), -EPIPE);
    SAME(fdflush(fd), -EPIPE);
    SAME(ssetvbuf(s, NULL, _IONBF, 0), 0);
    errno = 0;
    SAME(sfwrite("x", 1, 1, s), 1);
    SAME(errno, EPIPE);
    CHECK(salloc(s, &length) == NULL && length == -EPIPE, "%ld", length);
    SAME(sclose(s), -EPIPE);
}

/* A socket that nobody reads is no signal; a pipe is what write(2) makes of it. */
static void closed_sockets(void)
{
    signal(SIGPIPE, SIG_DFL);
    into_nothing(1);
}

static void closed_pipes(void)
{
    int status = 0;
    pid_t pid;
    signal(SIGPIPE, SIG_IGN);
    into_nothing(0);
    pid = fork();
    CHECK(pid >= 0, "%d", errno);
    if (pid == 0) {
        signal(SIGPIPE, SIG_DFL);
        into_nothing(0);
        _exit(0);
    }
    SAME(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE, "%d", status);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2, "wrong use");
    snprintf(directory, sizeof directory, "%s", argv[1]);
    snprintf(path, sizeof path, "%s/faults", directory);
    cut_while_read();
    cut_while_written();
    in_a_child(in_little_room);
    in_a_child(not_waited_for);
    in_a_child(interrupted);
    in_a_child(closed_sockets);
    in_a_child(closed_pipes);
    return 0;
}
