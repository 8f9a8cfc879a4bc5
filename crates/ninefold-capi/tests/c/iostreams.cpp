/*
 * iostreams DIR OPERATIONS: C++'s streams on regions do what std::stringstream does, copy nothing, and mix with C's calls.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>

#include "check.h"
#include "ninefold.hpp"

static std::string path;
static unsigned long long state = 1;

static long random_to(long bound)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<long>((state >> 33) % static_cast<unsigned long long>(bound));
}

static std::string content()
{
    char bytes[65536];
    int fd = open(path.c_str(), O_RDONLY);
    std::string all;
    ssize_t n;
    CHECK(fd >= 0, "%d", errno);
    while ((n = read(fd, bytes, sizeof bytes)) > 0)
        all.append(bytes, static_cast<size_t>(n));
    SAME(n, 0);
    SAME(close(fd), 0);
    return all;
}

/* Lines and numbers out and in again. */
static void formatted()
{
    asf::ostream out(path);
    CHECK(out.good(), "%d", out.error());
    for (int n = 0; n < 20000; n++)
        out << "line " << n << ' ' << std::hex << n << std::dec << '\n';
    SAME(out.tellp() > 64 * 1024, 1);
    out.flush();
    CHECK(out.good(), "%d", out.error());
    std::string before = content();
    CHECK(before.compare(before.size() - 16, 16, "line 19999 4e1f\n") == 0, "%s", before.c_str() + before.size() - 20);
    out << "last" << std::endl;
    SAME(out.close(), 0);
    CHECK(content() == before + "last\n", "");

    asf::istream in(path);
    std::string word, line;
    for (int n = 0; n < 20000; n++) {
        int number, again;
        in >> word >> number >> std::hex >> again >> std::dec;
        CHECK(in.good() && word == "line" && number == n && again == n, "%d", n);
    }
    std::getline(in, line);
    std::getline(in, line);
    CHECK(line == "last", "%s", line.c_str());
    CHECK(!std::getline(in, line) && in.eof() && in.error() == 0, "%d", in.error());
    in.clear();
    in.seekg(-5, std::ios::end);
    std::getline(in, line);
    CHECK(line == "last", "%s", line.c_str());
    /* The end may move. */
    SAME(in.get(), EOF);
    SAME(in.close(), 0);
}

/* The get area is the region, and the region is what the stream lends: no byte lies elsewhere. */
struct Seen : asf::streambuf {
    using asf::streambuf::streambuf;
    char *get() { return sgetc() == EOF ? nullptr : gptr(); }
};

static void not_copied()
{
    int error = 0;
    long length = 10;
    /* The file's own memory, which nobody can have written to: what goes back is lent again as it lies. */
    Stream *s = sopen_by(path.c_str(), O_RDONLY, 0, "mmap", &error);
    CHECK(s != NULL, "%d", error);
    {
        Seen buffer(s);
        char *at = buffer.get();
        CHECK(at != nullptr && buffer.sbumpc() == 'l', "%d", buffer.error());
        CHECK(buffer.settle(), "%d", buffer.error());
        /* The next region is behind the byte that was taken, in the same memory. */
        char *region = static_cast<char *>(salloc(s, &length));
        CHECK(region == at + 1 && !memcmp(region, "ine 0 0\nl", 9), "%ld", length);
        SAME(sfree(s, region), 0);
        SAME(buffer.sbumpc(), 'n');
    }
    SAME(sposition(s), 12);
    SAME(sclose(s), 0);
}

/* Beside a std::stringstream, with calls of C on the same stream in between. */
static void mixed(long operations)
{
    int error = 0;
    Stream *s = sopen(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644, &error);
    CHECK(s != NULL, "%d", error);
    std::string model;
    size_t at = 0;
    {
        asf::iostream io(s);
        for (long n = 0; n < operations; n++) {
            std::string text(static_cast<size_t>(1 + random_to(random_to(20) ? 50 : 100000)), static_cast<char>('a' + random_to(26)));
            long length = static_cast<long>(text.size());
            CHECK(io.good() && io.error() == 0, "%ld: %d", n, io.error());
            switch (random_to(8)) {
            case 0:
            case 1:
                if (model.size() > 300000)
                    break;
                io.write(text.data(), length);
                model.replace(at, at < model.size() ? text.size() : 0, text);
                at += text.size();
                break;
            case 2:
            case 3: {
                std::string is(text.size(), 0), here = model.substr(at, text.size());
                io.read(&is[0], length);
                SAME(io.gcount(), here.size());
                CHECK(is.compare(0, here.size(), here) == 0, "at %zu", at);
                at += here.size();
                io.clear();
                break;
            }
            case 4:
                at = static_cast<size_t>(random_to(static_cast<long>(model.size()) + 1));
                io.seekg(static_cast<std::streamoff>(at));
                break;
            case 5:
                SAME(io.tellp(), at);
                SAME(sposition(s), at);
                break;
            case 6:
                /* A byte that was taken is put back, and another in its place. */
                if (at < model.size()) {
                    SAME(io.get(), static_cast<unsigned char>(model[at]));
                    io.putback('!');
                    SAME(io.get(), '!');
                    io.seekg(static_cast<std::streamoff>(at));
                    SAME(io.get(), static_cast<unsigned char>(model[at]));
                    io.unget();
                    SAME(io.peek(), static_cast<unsigned char>(model[at]));
                }
                break;
            default: {
                SAME(io.sync(), 0);
                void *region = Salloc(s, SA_READ, &length);
                std::string here = model.substr(at, text.size());
                SAME(length, here.size());
                CHECK(length == 0 || !memcmp(region, here.data(), here.size()), "at %zu", at);
                at += here.size();
                if (region != NULL)
                    SAME(sfree(s, region), 0);
            }
            }
        }
        io.flush();
        CHECK(io.good(), "%d", io.error());
    }
    CHECK(content() == model, "%zu", model.size());
    SAME(sclose(s), 0);
}

static void wrong()
{
    asf::istream none(path + "/none");
    CHECK(!none && none.error() == -ENOTDIR, "%d", none.error());
    asf::ostream full("/dev/full", O_WRONLY);
    full << std::string(1000, 'x');
    CHECK(full.good(), "%d", full.error());
    full.flush();
    CHECK(full.bad() && full.error() == -ENOSPC, "%d", full.error());
    SAME(full.close(), -ENOSPC);
    asf::ostream read_only("/dev/null", O_RDONLY);
    read_only << 'x';
    CHECK(read_only.bad() && read_only.error() == -EBADF, "%d", read_only.error());
    asf::istream closed;
    SAME(closed.get(), EOF);
    /* Its first page is nobody's: not read, and not the end. */
    asf::istream unreadable("/proc/self/mem");
    SAME(unreadable.get(), EOF);
    CHECK(unreadable.bad() && unreadable.error() == -EIO, "%d", unreadable.error());
}

/* A destructor that meets an error while another is on its way lets that go on. */
static void thrown()
{
    bool caught = false;
    try {
        asf::ostream full("/dev/full", O_WRONLY);
        full.exceptions(std::ios::badbit | std::ios::failbit);
        full << "lost";
        throw 1;
    } catch (int) {
        caught = true;
    }
    CHECK(caught, "");
    asf::ostream told("/dev/full", O_WRONLY);
    told << "lost";
    told.exceptions(std::ios::failbit);
    try {
        told.close();
        caught = false;
    } catch (const std::ios_base::failure &) {
    }
    CHECK(caught && told.error() == -ENOSPC && told.stream() == nullptr, "%d", told.error());
}

/* Of a long write some is taken. */
static void limited()
{
    int status = 0;
    pid_t pid = fork();
    CHECK(pid >= 0, "%d", errno);
    if (pid == 0) {
        struct rlimit limit = { 300000, 300000 };
        asf::ostream out(path);
        CHECK(out.good(), "%d", out.error());
        signal(SIGXFSZ, SIG_IGN);
        SAME(setrlimit(RLIMIT_FSIZE, &limit), 0);
        out << std::string(1000000, 'x');
        CHECK(out.bad() && out.error() == -EFBIG, "%d", out.error());
        SAME(out.close(), -EFBIG);
        _exit(0);
    }
    SAME(waitpid(pid, &status, 0), pid);
    SAME(status, 0);
}

/* A stream of which C has a region goes on. */
static void busy()
{
    long length = 3;
    asf::ostream out(path);
    out << "before ";
    out.flush();
    char *region = static_cast<char *>(salloc(out.stream(), &length));
    CHECK(region != nullptr && length == 3, "%ld", length);
    SAME(out.close(), -EBUSY);
    CHECK(out.fail() && out.error() == -EBUSY && out.stream() != nullptr, "%d", out.error());
    out.clear();
    out.open("/dev/null", O_WRONLY);
    CHECK(out.fail() && out.error() == -EBUSY && out.stream() != nullptr, "%d", out.error());
    out.clear();
    memcpy(region, "and", 3);
    SAME(sfree(out.stream(), region), 0);
    out << " behind";
    SAME(out.close(), 0);
    CHECK(content() == "before and behind", "%s", content().c_str());
}

static void pipes()
{
    int ends[2], error = 0;
    SAME(pipe(ends), 0);
    SAME(write(ends[1], "12 34\n", 6), 6);
    SAME(close(ends[1]), 0);
    Stream *s = sdopen(ends[0], &error);
    CHECK(s != NULL, "%d", error);
    {
        asf::istream in(s);
        int one = 0, two = 0;
        in >> one >> two;
        CHECK(in.good() && one == 12 && two == 34, "%d %d", one, two);
        SAME(in.tellg(), 5);
        SAME(in.get(), '\n');
        SAME(in.get(), EOF);
        SAME(in.error(), 0);
    }
    SAME(sclose(s), 0);
    SAME(close(ends[0]), 0);
}

/* Beyond what 32 bits count, in a file that has no data before it. */
static void far_away()
{
    const std::streamoff far = 5ll << 30;
    asf::iostream io(path, O_RDWR | O_CREAT | O_TRUNC);
    CHECK(io.good(), "%d", io.error());
    io.seekp(far);
    io << "far";
    SAME(io.tellp(), far + 3);
    io.seekg(-2, std::ios::end);
    SAME(io.tellg(), far + 1);
    SAME(io.get(), 'a');
    io.seekg(-2, std::ios::cur);
    SAME(io.get(), 'f');
    io.seekg(far - 1);
    SAME(io.get(), 0);
    SAME(io.close(), 0);
    SAME(truncate(path.c_str(), 0), 0);
}

/* What does not wait is an error and no end, and goes on when there is more. */
static void not_waited_for()
{
    int ends[2], error = 0;
    SAME(pipe(ends), 0);
    SAME(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    Stream *s = sdopen(ends[0], &error);
    CHECK(s != NULL, "%d", error);
    {
        asf::istream in(s);
        SAME(in.get(), EOF);
        CHECK(in.bad() && in.error() == -EAGAIN, "%d", in.error());
        SAME(write(ends[1], "x", 1), 1);
        in.clear();
        SAME(in.get(), 'x');
        CHECK(in.good(), "%d", in.error());
    }
    SAME(sclose(s), 0);
    SAME(close(ends[0]), 0);
    SAME(close(ends[1]), 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3, "wrong use");
    path = std::string(argv[1]) + "/iostreams";
    formatted();
    not_copied();
    mixed(atol(argv[2]));
    wrong();
    thrown();
    limited();
    busy();
    pipes();
    not_waited_for();
    far_away();
    return 0;
}
