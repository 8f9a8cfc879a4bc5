/* A client of 9P2000.s, written from table 4.2 of John Floren's thesis (2010) and from Plan 9's manual, section 5, alone.
 *
 * client HOST PORT read NAME OFFSET    the file from OFFSET on, to standard output
 * client HOST PORT write NAME OFFSET   standard input to the file, from OFFSET on
 * NAME is one in the root of the tree. The exit status is 0 when all went well, 3 when the server does not speak 9P2000.s. */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { Tversion = 100, Tattach = 104, Rerror = 107, Twalk = 110, Topen = 112, Tclunk = 120, Tstream = 160 };

static unsigned char buf[8192];
static size_t len;

static void die(const char *why) { fprintf(stderr, "client: %s\n", why); exit(1); }

static void num(unsigned long long n, int bytes) { while (bytes-- > 0) { buf[len++] = n & 0xff; n >>= 8; } }

static void str(const char *s) { num(strlen(s), 2); memcpy(buf + len, s, strlen(s)); len += strlen(s); }

static unsigned long get(const unsigned char *p, int bytes) {
    unsigned long n = 0;
    while (bytes-- > 0) n = n << 8 | p[bytes];
    return n;
}

static void begin(int type) { len = 4; num(type, 1); num(type == Tversion ? 0xffff : 1, 2); }

static void full(int fd, size_t n) {
    size_t at = 0;
    ssize_t r;
    for (; at < n; at += r) if ((r = read(fd, buf + len + at, n - at)) <= 0) die("the server closed the session");
    len += n;
}

/* Sends the message that is in buf, and waits for its reply: the body is at buf + 7. */
static void rpc(int fd) {
    int type = buf[4];
    size_t n = len;
    len = 0; num(n, 4);
    if (write(fd, buf, n) != (ssize_t)n) die("cannot send");
    len = 0; full(fd, 4);
    if (get(buf, 4) < 7 || get(buf, 4) > sizeof buf) die("a reply of no size");
    full(fd, get(buf, 4) - 4);
    if (buf[4] == Rerror) { fprintf(stderr, "client: %.*s\n", (int)get(buf + 7, 2), buf + 9); exit(1); }
    if (buf[4] != type + 1) die("a reply of another type");
}

static int dial(const char *host, const char *port) {
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found;
    if (getaddrinfo(host, port, &hints, &found) != 0) die("unknown host");
    int fd = socket(found->ai_family, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) != 0) die("cannot connect");
    freeaddrinfo(found);
    return fd;
}

/* Moves bytes until there are no more. */
static void pump(int from, int to) {
    static char data[1 << 16];
    ssize_t n, w;
    while ((n = read(from, data, sizeof data)) > 0)
        for (ssize_t at = 0; at < n; at += w) if ((w = write(to, data + at, n - at)) <= 0) die("cannot write");
    if (n < 0) die("the data ended in an error");
}

int main(int argc, char **argv) {
    if (argc != 6) die("client HOST PORT read|write NAME OFFSET");
    int isread = strcmp(argv[3], "read") == 0, fd = dial(argv[1], argv[2]);
    begin(Tversion); num(8192, 4); str("9P2000.s"); rpc(fd);
    if (get(buf + 11, 2) != 8 || memcmp(buf + 13, "9P2000.s", 8) != 0) return 3;
    begin(Tattach); num(0, 4); num(0xffffffff, 4); str(getenv("USER") ? getenv("USER") : ""); str(""); rpc(fd);
    begin(Twalk); num(0, 4); num(1, 4); num(1, 2); str(argv[4]); rpc(fd);
    if (get(buf + 7, 2) != 1) die("no such file");
    begin(Topen); num(1, 4); num(isread ? 0 : 1, 1); rpc(fd);
    begin(Tstream); num(1, 4); num(isread, 1); num(strtoull(argv[5], NULL, 10), 8); rpc(fd);
    char address[256] = "", *host, *port;
    if (get(buf + 7, 4) >= sizeof address) die("an address that is too long");
    memcpy(address, buf + 11, get(buf + 7, 4));
    if (strncmp(address, "tcp!", 4) != 0 || (port = strrchr(host = address + 4, '!')) == NULL) die("a strange address");
    *port++ = 0;
    int data = dial(host, port);
    if (isread) pump(data, 1);
    else pump(0, data), shutdown(data, SHUT_WR), (void)!read(data, address, 1); /* it is closed when all is written */
    close(data);
    begin(Tclunk); num(1, 4); rpc(fd);
    return 0;
}
