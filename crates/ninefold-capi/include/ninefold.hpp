/*
 * ninefold.hpp - iostreams of C++ on the streams of ninefold.h, without copies: the get area and the put area are regions that the stream lends.
 *
 * asf::istream, asf::ostream and asf::iostream are std::istream and so on, with a Stream of their own or on one that the program has. C++11 or later; all is in
 * this header, and what it calls in libninefold. With NF_NO_SHORT_NAMES nothing is defined but the namespace.
 *
 * Offsets. What the program has taken from a get area, or put into a put area, the library does not know before the area is given back: by sync() (for
 * std::ostream flush()), a seek, a change between reading and writing, or the end. So calls of C on the same stream come behind a sync(), as with stdio; then both
 * have one offset. sync() gives what was put to the file (sflush).
 *
 * Errors. iostreams have badbit and no number: error() gives the number, negative, of what went wrong first, and 0 if nothing did. What cannot be read is badbit
 * too, and not the end alone: a streambuf throws std::ios_base::failure where it meets that, which std::istream makes badbit of. close() of a stream that
 * was opened by name gives that of sclose; -EBUSY: a region that C has is out, and the stream is as it was. A destructor tells nobody, and throws nothing.
 *
 * Threads. One thread at a time, as the standard has it for its streams.
 */
#ifndef NINEFOLD_HPP
#define NINEFOLD_HPP

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ios>
#include <istream>
#include <ostream>
#include <streambuf>
#include <string>

#include "ninefold.h"

namespace asf {

/* A buffer on a Stream, whose areas are its regions. It does not close the stream. */
class streambuf : public std::streambuf {
public:
    /* Bytes of a region that is asked for: a module lends what it has. */
    static const long area = 64 * 1024;

    explicit streambuf(NfStream *s = nullptr) : stream_(s) {}
    streambuf(const streambuf &) = delete;
    streambuf &operator=(const streambuf &) = delete;
    ~streambuf() override { settle(); }

    NfStream *stream() const { return stream_; }

    /* The first error, as the negative number; 0 is none. */
    int error() const { return error_; }

    /* Gives the areas back, and takes another stream. The error is forgotten. */
    void use(NfStream *s)
    {
        settle();
        stream_ = s;
        error_ = 0;
    }

    /* Gives the areas back, so that the stream's offset is this one's. What was put is freed; in the file it is by sync(). */
    bool settle() { return end_get() & end_put(); }

protected:
    int_type underflow() override
    {
        if (gptr() != nullptr && gptr() < egptr())
            return traits_type::to_int_type(*gptr());
        if (!settle() || !stream_)
            return traits_type::eof();
        long length = area;
        void *region = nf_Salloc(stream_, NF_SA_READ, &length);
        if (region == nullptr) {
            if (failed(length))
                cannot_read();
            return traits_type::eof();
        }
        get_ = static_cast<char *>(region);
        setg(get_, get_, get_ + length);
        return traits_type::to_int_type(*get_);
    }

    int_type overflow(int_type byte) override
    {
        if (!settle() || !stream_)
            return traits_type::eof();
        long length = area;
        void *region = nf_Salloc(stream_, NF_SA_WRITE, &length);
        if (region == nullptr) {
            failed(length);
            return traits_type::eof();
        }
        put_ = static_cast<char *>(region);
        setp(put_, put_ + length);
        if (!traits_type::eq_int_type(byte, traits_type::eof()))
            sputc(traits_type::to_char_type(byte));
        return traits_type::not_eof(byte);
    }

    /* Any byte, as sungetc has it. The get area is not for writing. */
    int_type pbackfail(int_type byte) override
    {
        if (!settle() || !stream_)
            return traits_type::eof();
        if (traits_type::eq_int_type(byte, traits_type::eof())) {
            /* The byte that was there: of what has places. */
            long none = 0;
            nf_sallocAt(stream_, &none, -1, SEEK_CUR);
            return none < 0 ? traits_type::eof() : underflow();
        }
        return nf_sungetc(static_cast<unsigned char>(traits_type::to_char_type(byte)), stream_) < 0 ? traits_type::eof() : byte;
    }

    int sync() override
    {
        if (!settle() || !stream_)
            return -1;
        return failed(nf_sflush(stream_)) ? -1 : 0;
    }

    pos_type seekoff(off_type by, std::ios_base::seekdir from, std::ios_base::openmode) override
    {
        if (!settle() || !stream_)
            return pos_type(off_type(-1));
        /* Where it is a pipe can tell too. */
        if (by == 0 && from == std::ios_base::cur)
            return position();
        long none = 0;
        int whence = from == std::ios_base::beg ? SEEK_SET : from == std::ios_base::cur ? SEEK_CUR : SEEK_END;
        nf_sallocAt(stream_, &none, by, whence);
        return none < 0 ? pos_type(off_type(-1)) : position();
    }

    pos_type seekpos(pos_type to, std::ios_base::openmode which) override { return seekoff(off_type(to), std::ios_base::beg, which); }

    std::streamsize xsputn(const char *from, std::streamsize count) override
    {
        /* What fits goes to the area, and what is long past it. */
        if (count <= epptr() - pptr() || count < area)
            return std::streambuf::xsputn(from, count);
        if (!settle() || !stream_)
            return 0;
        long taken = nf_sfwrite(from, 1, static_cast<size_t>(count), stream_);
        /* Of what is not whole the number is in errno. */
        if (taken >= 0 && taken < count)
            failed(errno != 0 ? -errno : -EIO);
        return failed(taken) ? 0 : taken;
    }

    std::streamsize showmanyc() override { return 0; }

private:
    NfStream *stream_;
    char *get_ = nullptr, *put_ = nullptr;
    int error_ = 0;

    bool failed(long result)
    {
        if (result < 0 && error_ == 0)
            error_ = static_cast<int>(result);
        return result < 0;
    }

    /* An eof() would be the end, of a file that was read whole. */
    static void cannot_read()
    {
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
        throw std::ios_base::failure("asf::streambuf: cannot read");
#endif
    }

    pos_type position()
    {
        long long at = nf_sposition(stream_);
        return pos_type(off_type(at < 0 ? -1 : at));
    }

    /* What was not taken is the stream's next again: the region becomes as long as what was, and where that cannot be, the offset goes back. */
    bool end_get()
    {
        if (get_ == nullptr)
            return true;
        long taken = gptr() - eback(), left = egptr() - gptr();
        char *region = get_;
        get_ = nullptr;
        setg(nullptr, nullptr, nullptr);
        void *now = left > 0 ? nf_srealloc(stream_, region, taken) : region;
        if (now != nullptr)
            return !failed(nf_sfree(stream_, now));
        long none = 0;
        bool freed = !failed(nf_sfree(stream_, region));
        nf_sallocAt(stream_, &none, -static_cast<long long>(left), SEEK_CUR);
        return !failed(none) && freed;
    }

    /* The put area becomes as long as what was put. */
    bool end_put()
    {
        if (put_ == nullptr)
            return true;
        long put = pptr() - pbase(), left = epptr() - pptr();
        char *region = put_;
        put_ = nullptr;
        setp(nullptr, nullptr);
        void *now = left > 0 ? nf_srealloc(stream_, region, put) : region;
        if (now == nullptr) {
            /* Somebody allocated behind it. No byte that nobody put may go to the file unseen. */
            failed(-EINVAL);
            std::memset(region + put, 0, static_cast<size_t>(left));
            nf_sfree(stream_, region);
            return false;
        }
        return !failed(nf_sfree(stream_, now));
    }
};

/* A stream of iostreams on a streambuf: Base is std::istream, std::ostream or std::iostream. */
template <class Base, int Flags, int Truncates> class basic : public Base {
public:
    basic() : Base(nullptr) { this->init(&buffer_); }

    /* On a stream that the program has, and closes behind this. */
    explicit basic(NfStream *s) : basic() { buffer_.use(s); }

    /* A file here, as sopen has it; flags are open(2)'s. !*this: it could not be opened, and error() says why. */
    explicit basic(const std::string &name, int flags = Flags | Truncates, int mode = 0666) : basic() { open(name, flags, mode); }

    basic(const basic &) = delete;
    basic &operator=(const basic &) = delete;
    ~basic() override { end(); }

    /* What was open is closed before; where that is -EBUSY it stays. */
    void open(const std::string &name, int flags = Flags | Truncates, int mode = 0666)
    {
        int error = 0;
        end();
        if (own_ != nullptr) {
            this->setstate(std::ios_base::failbit);
            return;
        }
        own_ = nf_sopen(name.c_str(), flags, mode, &error);
        error_ = own_ == nullptr ? error : 0;
        buffer_.use(own_);
        if (own_ == nullptr)
            this->setstate(std::ios_base::failbit);
        else
            this->clear();
    }

    /* 0, or the negative number of what went wrong, now or before. -EBUSY: regions are out, and the stream goes on. */
    int close()
    {
        int result = end();
        if (result < 0)
            this->setstate(std::ios_base::failbit);
        return result;
    }

    int error() const { return buffer_.error() != 0 ? buffer_.error() : error_; }
    NfStream *stream() const { return buffer_.stream(); }
    streambuf *rdbuf() const { return const_cast<streambuf *>(&buffer_); }

private:
    streambuf buffer_;
    NfStream *own_ = nullptr;
    int error_ = 0;

    /* All of close() but what may throw. */
    int end() noexcept
    {
        buffer_.settle();
        /* Of a stream that is open it says that the last end() found regions out. */
        if (own_ != nullptr)
            error_ = 0;
        int result = error();
        if (own_ != nullptr) {
            int closed = nf_sclose(own_);
            if (closed == -EBUSY)
                return error_ = closed;
            own_ = nullptr;
            result = result == 0 ? closed : result;
        }
        buffer_.use(nullptr);
        return error_ = result;
    }
};

typedef basic<std::istream, O_RDONLY, 0> istream;
typedef basic<std::ostream, O_WRONLY, O_CREAT | O_TRUNC> ostream;
typedef basic<std::iostream, O_RDWR, 0> iostream;

} // namespace asf

#endif /* NINEFOLD_HPP */
