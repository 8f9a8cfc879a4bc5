/* cp with streams (thesis, sections 6.1 and 6.2): stream behind each open, sread for read, swrite for write, sclose at the end. */
#include <ninefold.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    char buf[8192];
    long n;
    if (argc != 3) return 2;
    int from = as_open(argv[1], O_RDONLY);
    int to = as_open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (from < 0 || to < 0) return perror("cp"), 1;
    Stream *in = stream(from, 0, 1), *out = stream(to, 0, 0);
    if (!in || !out) return perror("cp"), 1;
    while ((n = sread(in, buf, sizeof buf)) > 0)
        if (swrite(out, buf, n) != n) return perror(argv[2]), 1;
    if (n < 0 || sclose(in) < 0) return perror(argv[1]), 1;
    if (sclose(out) < 0) return perror(argv[2]), 1;
    return as_close(to) < 0 ? perror(argv[2]), 1 : 0;
}
