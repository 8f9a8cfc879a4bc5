/* A filter: tr a-z A-Z. Each byte is looked at where the library has it, and put where it is written from. */
#include <errno.h>
#include <ninefold.h>
#include <stdio.h>
#include <unistd.h>

static int failed(const char *what, long error)
{
    errno = (int)-error;
    return perror(what), 1;
}

int main(void)
{
    int error;
    long length, n;
    char *from, *to;
    Stream *in = sdopen(0, &error), *out = in ? sdopen(1, &error) : NULL;
    if (!out) return failed("upper", error);
    /* A terminal is open for both: the mode is named. */
    while (length = 65536, (from = Salloc(in, SA_READ, &length)) != NULL) {
        if ((to = Salloc(out, SA_WRITE, &length)) == NULL) return failed("standard output", length);
        for (n = 0; n < length; n++)
            to[n] = (char)(from[n] >= 'a' && from[n] <= 'z' ? from[n] - 'a' + 'A' : from[n]);
        if ((error = sfree(out, to)) < 0) return failed("standard output", error);
        if ((error = sfree(in, from)) < 0) return failed("standard input", error);
        /* Somebody may wait for it. */
        if (isatty(1) && (error = sflush(out)) < 0) return failed("standard output", error);
    }
    if (length < 0) return failed("standard input", length);
    /* Who writes there next begins behind it. */
    n = sposition(out);
    if ((error = sclose(out)) < 0) return failed("standard output", error);
    lseek(1, n, SEEK_SET);
    return (error = sclose(in)) < 0 ? failed("standard input", error) : 0;
}
