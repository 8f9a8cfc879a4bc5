/*
 * stdio DIR OPERATIONS: standard I/O on streams. What is named; and random calls beside the same of libc on a twin, with regions between
 * them.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

static char path[4096], twin_path[4096];

static Stream *opens(const char *mode)
{
    Stream *s = sfopen(path, mode);
    CHECK(s != NULL, "%d", errno);
    return s;
}

static void named(void)
{
    char line[100], word[10];
    long length, n;
    int number;
    char *region;
    Stream *s = opens("w+");
    SAME(sputs("one two\n", s), 0);
    SAME(sfprintf(s, "%d %s\n", 42, "words"), 9);
    for (n = 0; n < 600; n++)
        line[n % 100] = 'x';
    line[99] = '\0';
    SAME(sfprintf(s, "%s%s%s%s%s%s\n", line, line, line, line, line, line), 6 * 99 + 1);
    length = 4;
    CHECK((region = salloc(s, &length)) != NULL, "%ld", length);
    memcpy(region, "end:", 4);
    SAME(sfree(s, region), 0);
    SAME(sputc('!' + 256, s), '!');
    SAME(sftell(s), 8 + 9 + 595 + 5);
    SAME(sfseek(s, 0, SEEK_SET), 0);
    CHECK(sgets(line, 4, s) == line && !strcmp(line, "one"), "%s", line);
    CHECK(sgets(line, 100, s) == line && !strcmp(line, " two\n"), "%s", line);
    SAME(sfscanf(s, "%d %9s", &number, word), 2);
    SAME(number, 42);
    CHECK(!strcmp(word, "words"), "%s", word);
    /* What ended the word is still there, for every call. */
    SAME(sgetc(s), '\n');
    SAME(sungetc('\n', s), '\n');
    CHECK((region = salloc_line(s, &length)) != NULL && length == 1, "%ld", length);
    SAME(sfree(s, region), 0);
    SAME(sfseek(s, -5, SEEK_END), 0);
    SAME(sfscanf(s, "%d", &number), 0);
    SAME(sgetc(s), 'e');
    /* Another byte than was there, and several. */
    SAME(sungetc('E', s), 'E');
    SAME(sungetc('>', s), '>');
    length = 100;
    CHECK((region = salloc(s, &length)) != NULL && length == 6 && !memcmp(region, ">End:!", 6), "%ld", length);
    SAME(sfree(s, region), 0);
    SAME(sgetc(s), EOF);
    SAME(sfscanf(s, "%d", &number), EOF);
    CHECK(sgets(line, 100, s) == NULL && errno == 0, "%d", errno);
    SAME(sfread(line, 10, 3, s), 0);
    SAME(sungetc(EOF, s), EOF);
    /* The file has what it had. */
    SAME(sfseek(s, -6, SEEK_CUR), 0);
    SAME(sgetc(s), '\n');
    SAME(sungetc('?', s), '?');
    SAME(sfseek(s, 0, SEEK_CUR), 0);
    SAME(sgetc(s), '\n');
    SAME(sfclose(s), 0);

    s = opens("r");
    SAME(sungetc('x', s), -EINVAL);
    SAME(sputc('x', s), -EBADF);
    SAME(sputs("x", s), -EBADF);
    SAME(sfwrite("x", 1, 1, s), -EBADF);
    SAME(sfprintf(s, "x"), -EBADF);
    SAME(sfwrite("x", (size_t)1 << 63, 2, s), -EOVERFLOW);
    SAME(sfread(NULL, 1, 1, s), -EFAULT);
    SAME(sfread(line, 0, 10, s), 0);
    SAME(sfread(line, 10, 0, s), 0);
    CHECK(sgets(line, 0, s) == NULL && errno == EINVAL, "%d", errno);
    CHECK(sgets(line, 1, s) == line && line[0] == '\0', "");
    CHECK(sgets(NULL, 5, s) == NULL && errno == EFAULT, "%d", errno);
    SAME(sfclose(s), 0);
    s = opens("w");
    SAME(sgetc(s), -EBADF);
    SAME(sfscanf(s, "%d", &number), -EBADF);
    CHECK(sgets(line, 5, s) == NULL && errno == EBADF, "%d", errno);
    SAME(sungetc('x', s), -EBADF);
    SAME(sfclose(s), 0);
    CHECK(sfopen(path, "wx") == NULL && errno == EEXIST, "%d", errno);
    CHECK(sfopen(path, "q") == NULL && errno == EINVAL, "%d", errno);
    CHECK(sfopen(path, NULL) == NULL && errno == EFAULT, "%d", errno);
    SAME(sgetc(NULL), -EFAULT);
    SAME(sputc('x', NULL), -EFAULT);
    SAME(sfflush(NULL), -EFAULT);
    SAME(sftell(NULL), -EFAULT);
}

/* Reachable when the process ends: no leak. */
static Stream *left_open;

/* A child ends with the stream open. */
static void leaves(const char *text)
{
    int status = 0;
    pid_t pid = fork();
    CHECK(pid >= 0, "%d", errno);
    if (pid == 0) {
        left_open = opens("w");
        SAME(sputs(text, left_open), 0);
        exit(0);
    }
    SAME(waitpid(pid, &status, 0), pid);
    SAME(status, 0);
}

static off_t size(void)
{
    struct stat st;
    SAME(stat(path, &st), 0);
    return st.st_size;
}

static void buffers(void)
{
    char buffer[BUFSIZ];
    Stream *s = opens("w");
    SAME(sputs("a\n", s), 0);
    SAME(size(), 0);
    SAME(sfflush(s), 0);
    SAME(size(), 2);
    SAME(ssetvbuf(s, buffer, _IOLBF, sizeof buffer), 0);
    SAME(sputs("line", s), 0);
    SAME(size(), 2);
    SAME(sputc('\n', s), '\n');
    SAME(size(), 7);
    SAME(ssetvbuf(s, NULL, _IONBF, 0), 0);
    SAME(sputc('x', s), 'x');
    SAME(size(), 8);
    SAME(sfprintf(s, "%d", 5), 1);
    SAME(size(), 9);
    SAME(ssetvbuf(s, NULL, 9, 0), -EINVAL);
    SAME(sfclose(s), 0);
    s = opens("a");
    SAME(sfwrite("end", 3, 1, s), 1);
    SAME(sfclose(s), 0);
    SAME(size(), 12);

    /* exit(3) flushes nothing. */
    leaves("text");
    SAME(size(), 0);

    /* What is taken is told as taken, and what is wrong with its way to the file in errno, and by each call behind it. */
    s = sfopen("/dev/full", "w");
    CHECK(s != NULL, "%d", errno);
    SAME(ssetvbuf(s, NULL, _IONBF, 0), 0);
    errno = 0;
    SAME(sfwrite("abc", 1, 3, s), 3);
    SAME(errno, ENOSPC);
    SAME(sputs("d", s), -ENOSPC);
    SAME(sfflush(s), -ENOSPC);
    SAME(sfclose(s), -ENOSPC);
}

/* A pipe has no places, and what is put back is there all the same. */
static void pipes(void)
{
    int ends[2], a = 0, b = 0, error;
    char word[10];
    long length = 10;
    char *region;
    Stream *s;
    SAME(pipe(ends), 0);
    SAME(write(ends[1], "12 34abc def", 12), 12);
    SAME(close(ends[1]), 0);
    s = sdopen(ends[0], &error);
    CHECK(s != NULL, "%d", error);
    SAME(sfscanf(s, "%d%d", &a, &b), 2);
    CHECK(a == 12 && b == 34, "%d %d", a, b);
    SAME(sungetc('#', s), '#');
    SAME(sfscanf(s, "%9s", word), 1);
    CHECK(!strcmp(word, "#abc"), "%s", word);
    CHECK((region = salloc_full(s, &length)) != NULL && length == 4 && !memcmp(region, " def", 4), "%ld", length);
    SAME(sfree(s, region), 0);
    SAME(sfscanf(s, "%9s", word), EOF);
    SAME(sfclose(s), 0);
    SAME(close(ends[0]), 0);
}

static unsigned long long state;

static long draw(long below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (long)((state >> 33) % (unsigned long long)below);
}

static void random_calls(long operations)
{
    static char ours[70000], theirs[70000];
    FILE *twin = fopen(twin_path, "w+");
    Stream *s = opens("w+");
    long n, m, count, back = 0;
    CHECK(twin != NULL, "%d", errno);
    for (n = 0; n < operations; n++) {
        long length = draw(10) == 0 ? draw(70000) : draw(80);
        char *region;
        switch (draw(12)) {
        case 0: /* what libc wants between reading and writing, and we do not */
            fseek(twin, 0, SEEK_CUR);
            for (m = 0; m < length; m++)
                ours[m] = (char)(draw(20) ? 'a' + draw(26) : '\n');
            SAME(sfwrite(ours, 1, (size_t)length, s), length);
            SAME(fwrite(ours, 1, (size_t)length, twin), length);
            fseek(twin, 0, SEEK_CUR);
            break;
        case 1:
            fseek(twin, 0, SEEK_CUR);
            for (m = 0; m < length % 80; m++) {
                SAME(sputc('0' + (int)m % 10, s), '0' + m % 10);
                putc('0' + (int)m % 10, twin);
            }
            fseek(twin, 0, SEEK_CUR);
            break;
        case 2:
            fseek(twin, 0, SEEK_CUR);
            SAME(sfprintf(s, "%ld:%s\n", n, "text"), fprintf(twin, "%ld:%s\n", n, "text"));
            fseek(twin, 0, SEEK_CUR);
            break;
        case 3:
            fseek(twin, 0, SEEK_CUR);
            if (length == 0)
                break;
            CHECK((region = Salloc(s, SA_WRITE, &length)) != NULL, "%ld", length);
            memset(region, 'R', (size_t)length);
            SAME(sfree(s, region), 0);
            for (m = 0; m < length; m++)
                putc('R', twin);
            fseek(twin, 0, SEEK_CUR);
            break;
        case 4:
        case 5:
            count = (long)fread(theirs, 1, (size_t)length, twin);
            SAME(sfread(ours, 1, (size_t)length, s), count);
            CHECK(!memcmp(ours, theirs, (size_t)count), "%ld", n);
            break;
        case 6:
            for (m = 0; m < length % 80; m++)
                SAME(sgetc(s), getc(twin));
            break;
        case 7: {
            int most = 2 + (int)length % 300;
            char *got = fgets(theirs, most, twin);
            CHECK((sgets(ours, most, s) != NULL) == (got != NULL), "%ld", n);
            CHECK(got == NULL || !strcmp(ours, theirs), "%ld, %s, %s", n, ours, theirs);
            break;
        }
        case 8: {
            /* One byte back, its own or another: libc promises no more. */
            int byte = getc(twin), other = draw(2) ? 'u' : byte;
            SAME(sgetc(s), byte);
            if (byte == EOF)
                break;
            ungetc(other, twin);
            SAME(sungetc(other, s), other);
            back++;
            if (draw(2)) {
                SAME(sgetc(s), getc(twin));
            } else {
                length = 1 + length % 5000;
                count = (long)fread(theirs, 1, (size_t)length, twin);
                CHECK((region = Salloc(s, SA_READ, &length)) != NULL, "%ld", length);
                SAME(length, count);
                CHECK(!memcmp(region, theirs, (size_t)count), "%ld", n);
                SAME(sfree(s, region), 0);
            }
            break;
        }
        case 9: {
            char one[20] = "", two[20] = "";
            int result = fscanf(twin, "%19[a-z]", one);
            SAME(sfscanf(s, "%19[a-z]", two), result);
            CHECK(!strcmp(one, two), "%ld, %s, %s", n, one, two);
            break;
        }
        default: {
            long to = draw(1 + ftell(twin) + (draw(2) ? 0 : 1000));
            SAME(fseek(twin, to, SEEK_SET), 0);
            SAME(sfseek(s, to, SEEK_SET), 0);
        }
        }
        SAME(sftell(s), ftell(twin));
    }
    CHECK(back > 0, "");
    SAME(sfclose(s), 0);
    fclose(twin);
    twin = fopen(twin_path, "r");
    s = opens("r");
    do {
        count = (long)fread(theirs, 1, sizeof theirs, twin);
        SAME(sfread(ours, 1, sizeof ours, s), count);
        CHECK(!memcmp(ours, theirs, (size_t)count), "");
    } while (count > 0);
    SAME(sfclose(s), 0);
    fclose(twin);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3, "wrong use");
    snprintf(path, sizeof path, "%s/stdio", argv[1]);
    snprintf(twin_path, sizeof twin_path, "%s/stdio.twin", argv[1]);
    named();
    buffers();
    pipes();
    for (state = 1; state < 4; state++) {
        unsigned long long seed = state;
        random_calls(atol(argv[2]));
        state = seed;
    }
    return 0;
}
