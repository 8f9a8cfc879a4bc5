/* cp FROM TO: the kernel copies between plain files; elsewhere one region is copied to another. */
#include <errno.h>
#include <limits.h>
#include <ninefold.h>
#include <stdio.h>

static int failed(const char *what, long long error)
{
    errno = (int)-error;
    return perror(what), 1;
}

int main(int argc, char **argv)
{
    int error;
    long long copied;
    Stream *from, *to;
    if (argc != 3 && argc != 4) return 2;
    if (!(from = sopen(argv[1], O_RDONLY, 0, &error))) return failed(argv[1], error);
    /* A third word is a module: copy FILE.gz FILE gzip. */
    if (argc == 4 && (error = spush(from, argv[3])) < 0) return failed(argv[3], error);
    if (!(to = sopen(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0666, &error))) return failed(argv[2], error);
    if ((copied = scopy(from, to, LLONG_MAX)) < 0) return failed("copy", copied);
    if ((error = sclose(to)) < 0) return failed(argv[2], error);
    return (error = sclose(from)) < 0 ? failed(argv[1], error) : 0;
}
