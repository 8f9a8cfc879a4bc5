/*
 * ring: two processes at the two ends of a pair of Unix sockets, by the module of that name: what one frees the other is lent. A program that
 * knows no rings reads plain bytes; the module is refused what it is not for.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

#define LINES 20000

/* Writes numbered lines. */
static void give(int fd)
{
    int error;
    Stream *s = sdopen_by(fd, "ring", &error);
    CHECK(s != NULL, "%d", error);
    for (long i = 0; i < LINES; i++) {
        char line[32];
        long length = snprintf(line, sizeof line, "%ld\n", i), room = length;
        void *region = salloc(s, &room);
        CHECK(region != NULL, "%ld", room);
        SAME(room, length);
        memcpy(region, line, (size_t)length);
        SAME(sfree(s, region), 0);
    }
    SAME(sclose(s), 0);
}

static void take(int fd)
{
    int error;
    long length, at = 0;
    void *line;
    Stream *s = sdopen_by(fd, "ring", &error);
    CHECK(s != NULL, "%d", error);
    CHECK(strcmp(smodule(s), "ring") == 0, "%s", smodule(s));
    while ((line = salloc_line(s, &length)) != NULL) {
        SAME(strtol(line, NULL, 10), at++);
        SAME(sfree(s, line), 0);
    }
    SAME(length, 0);
    SAME(at, LINES);
    SAME(sclose(s), 0);
}

/* The same by read(2). */
static void take_plainly(int fd)
{
    FILE *in = fdopen(fd, "r");
    char line[32];
    long at = 0;
    while (fgets(line, sizeof line, in) != NULL)
        SAME(strtol(line, NULL, 10), at++);
    SAME(at, LINES);
}

static void hand_over(void (*taker)(int))
{
    int ends[2], status;
    pid_t child;
    SAME(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    CHECK((child = fork()) >= 0, "%d", errno);
    if (child == 0) {
        close(ends[1]);
        give(ends[0]);
        _exit(0);
    }
    close(ends[0]);
    taker(ends[1]);
    SAME(waitpid(child, &status, 0), child);
    SAME(status, 0);
}

int main(void)
{
    int error, fd = open("/dev/null", O_RDONLY);
    hand_over(take);
    hand_over(take_plainly);
    CHECK(sdopen_by(fd, "no such", &error) == NULL && error == -EINVAL, "%d", error);
    CHECK(sdopen_by(fd, NULL, &error) == NULL && error == -EFAULT, "%d", error);
    CHECK(sdopen_by(-1, "ring", &error) == NULL && error == -EBADF, "%d", error);
    return 0;
}
