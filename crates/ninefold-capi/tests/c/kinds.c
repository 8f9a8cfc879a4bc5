/* kinds DIR: streams on a terminal and on a directory. In DIR there are the files 0 to 99 and nothing else. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

static void seen(int person, const char *what)
{
    char bytes[64];
    size_t have = 0, all = strlen(what);
    while (have < all) {
        struct pollfd screen = {person, POLLIN, 0};
        ssize_t n;
        SAME(poll(&screen, 1, 60000), 1);
        n = read(person, bytes + have, all - have);
        CHECK(n > 0, "%d", errno);
        have += (size_t)n;
    }
    CHECK(!memcmp(bytes, what, all), "%.*s", (int)all, bytes);
}

static void terminal(void)
{
    int person = posix_openpt(O_RDWR | O_NOCTTY), fd, error;
    struct termios modes;
    char line[100];
    long length = 100;
    char *region;
    Stream *in, *out;
    CHECK(person >= 0 && grantpt(person) == 0 && unlockpt(person) == 0, "%d", errno);
    fd = open(ptsname(person), O_RDWR | O_NOCTTY);
    CHECK(fd >= 0 && tcgetattr(fd, &modes) == 0, "%d", errno);
    modes.c_lflag &= ~(tcflag_t)ECHO;
    modes.c_oflag &= ~(tcflag_t)OPOST;
    SAME(tcsetattr(fd, TCSANOW, &modes), 0);
    in = sdopen(fd, &error);
    out = sdopen(fd, &error);
    CHECK(in != NULL && out != NULL, "%d", error);
    CHECK(!strcmp(smodule(in), "terminal"), "%s", smodule(in));
    /* A line is there at its end, by any call. */
    SAME(sputs("one\n", out), 0);
    seen(person, "one\n");
    SAME(sputc('t', out), 't');
    SAME(sfwrite("wo\n", 1, 3, out), 3);
    seen(person, "two\n");
    length = 6;
    region = (char *)Salloc(out, SA_WRITE, &length);
    CHECK(region != NULL, "%ld", length);
    memcpy(region, "three\n", 6);
    SAME(sfree(out, region), 0);
    seen(person, "three\n");
    /* And a question before the answer is waited for. */
    SAME(sfprintf(out, "%s? ", "name"), 6);
    SAME(write(person, "me\nand\nmore\n\004again\n", 19), 19);
    CHECK(sgets(line, sizeof line, in) == line && !strcmp(line, "me\n"), "%s", line);
    seen(person, "name? ");
    length = 100;
    region = (char *)salloc(in, &length);
    CHECK(region != NULL && length == 4 && !memcmp(region, "and\n", 4), "%ld", length);
    SAME(sfree(in, region), 0);
    SAME(sfread(line, 1, sizeof line, in), 5);
    SAME(sgetc(in), 'a');
    /* An end that is typed behind a part of a line is told behind that. */
    SAME(write(person, "la\004\004last\n", 9), 9);
    CHECK(sgets(line, sizeof line, in) == line && !strcmp(line, "gain\n"), "%s", line);
    CHECK(sgets(line, sizeof line, in) == line && !strcmp(line, "la"), "%s", line);
    CHECK(sgets(line, sizeof line, in) == NULL, "%s", line);
    CHECK(sgets(line, sizeof line, in) == line && !strcmp(line, "last\n"), "%s", line);
    SAME(sclose(in), 0);
    SAME(sclose(out), 0);
    SAME(close(fd), 0);
    SAME(close(person), 0);
}

static void directory(const char *path)
{
    static long long places[200];
    static char names[200][256];
    struct dirent64 *entry;
    struct stat st;
    long length;
    int error, many = 0, found = 0, i;
    Stream *s = sopen(path, O_RDONLY, 0, &error);
    CHECK(s != NULL, "%d", error);
    CHECK(!strcmp(smodule(s), "directory"), "%s", smodule(s));
    while (places[many] = sposition(s), length = 4096, (entry = (struct dirent64 *)salloc(s, &length)) != NULL) {
        SAME(entry->d_reclen, length);
        SAME(entry->d_off, sposition(s));
        CHECK(many < 150, "");
        snprintf(names[many++], sizeof names[0], "%s", entry->d_name);
        found += entry->d_name[0] != '.';
        SAME(sfree(s, entry), 0);
    }
    SAME(length, 0);
    SAME(many, 102);
    SAME(found, 100);
    for (i = 0; i < many; i += 7) {
        length = 4096;
        entry = (struct dirent64 *)sallocAt(s, &length, places[i], SEEK_SET);
        CHECK(entry != NULL && !strcmp(entry->d_name, names[i]), "%d", i);
        SAME(sfree(s, entry), 0);
        SAME(sfseek(s, places[i], SEEK_SET), 0);
        SAME(sftell(s), places[i]);
    }
    SAME(sfseek(s, 1, SEEK_CUR), -EINVAL);
    SAME(as_fstat(sfileno(s), &st), 0);
    CHECK(S_ISDIR(st.st_mode), "%o", st.st_mode);
    SAME(sclose(s), 0);
    CHECK(sopen(path, O_WRONLY, 0, &error) == NULL && error == -EISDIR, "%d", error);
    CHECK(sopen_by(path, O_RDONLY, 0, "pipe", &error) == NULL && error == -EINVAL, "%d", error);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2, "wrong use");
    terminal();
    directory(argv[1]);
    return 0;
}
