/* A parallel word count: wc FILE by four threads, which share one stream and look at what each was lent side by side. */
#include <errno.h>
#include <ninefold.h>
#include <pthread.h>
#include <stdio.h>

#define THREADS 4

static Stream *text;

struct count {
    long lines, words, bytes, error;
};

static int is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static void add(struct count *count, const char *region, long length, int *within)
{
    long n;
    for (n = 0; n < length; n++) {
        count->lines += region[n] == '\n';
        count->words += !is_space(region[n]) && !*within;
        *within = !is_space(region[n]);
    }
    count->bytes += length;
}

static void *counts(void *sum)
{
    struct count *count = sum;
    char *part, *rest = NULL;
    do {
        long length = 1 << 18, behind = 0;
        int within = 0;
        /* One step: a part, and what is left of its last line, so that no word is cut. */
        LockAsfStream(text);
        if ((part = u_salloc(text, &length)) != NULL) rest = salloc_line(text, &behind);
        UnlockAsfStream(text);
        if (length < 0 || behind < 0) count->error = length < 0 ? length : behind;
        if (part == NULL) break;
        add(count, part, length, &within);
        length = sfree(text, part);
        if (rest != NULL) {
            add(count, rest, behind, &within);
            behind = sfree(text, rest);
        }
        if (length < 0 || behind < 0) count->error = length < 0 ? length : behind;
    } while (!count->error);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    struct count parts[THREADS] = {{0, 0, 0, 0}}, all = {0, 0, 0, 0};
    int n, error = -EINVAL;
    if (argc != 2) return 2;
    if (!(text = sopen(argv[1], O_RDONLY, 0, &error))) return errno = -error, perror(argv[1]), 1;
    for (n = 0; n < THREADS; n++)
        if ((errno = pthread_create(&threads[n], NULL, counts, &parts[n]))) return perror("thread"), 1;
    for (n = 0; n < THREADS; n++) {
        pthread_join(threads[n], NULL);
        all.lines += parts[n].lines, all.words += parts[n].words, all.bytes += parts[n].bytes;
        if (parts[n].error) all.error = parts[n].error;
    }
    if (!all.error) all.error = sclose(text);
    if (all.error) return errno = (int)-all.error, perror(argv[1]), 1;
    return printf("%ld %ld %ld\n", all.lines, all.words, all.bytes) < 0;
}
