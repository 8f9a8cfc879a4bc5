/*
 * ninefold.h - Unix I/O and streams, on files here and on files of 9P servers; streams that lend their memory, on both.
 *
 * Link with -lninefold (pkg-config --cflags --libs ninefold). docs/c.md and the manual pages as_open(3), stream(3), sopen(3) and sfopen(3) say more.
 *
 * Names. Where a call takes the name of a file it takes an address too: 9p://HOST[:PORT]/PATH, 9ps://HOST[:PORT]/PATH, 9p+unix:/SOCKET:/PATH,
 * 9p+ssh://[USER@]HOST/PATH, or HOST:/PATH, which is the same by ssh; with ?aname=NAME or ?dialect=NAME behind all but the last.
 * A word without a scheme is an address only if a ":/" comes before its first '/', so a:b is a file here, and so is ./a:/b.
 *
 * Errors. A call that fails gives the negative number of the error (-ENOENT), and sets errno to the number besides. Calls that
 * give pointers give NULL, and the number in errno.
 *
 * Threads. All calls may be made from any thread at any time. All files of a server share one connection.
 *
 * fork(2). A child has none of the parent's files of servers: for it their descriptors and streams are EBADF, at once, and it
 * may open its own; of one that lends regions it may still have what was at hand. exec(3) passes none on. A stream that lends regions of a
 * file here goes on in a child if no other thread was at it when the parent forked; what was written and not flushed before is then written by both.
 *
 * Only names that begin with nf_, NF_ or Nf are defined where NF_NO_SHORT_NAMES is (NfAlloc, NfFree, NfAllocLine and NfGet are salloc, sfree, salloc_line and sgetc then); else the short names are too, as functions,
 * so that they hide nothing: a variable, a member or a parameter may be called stream.
 */
#ifndef NINEFOLD_H
#define NINEFOLD_H

#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Descriptors of files of servers are NF_FD_MIN or more: the kernel gives no such number. Smaller ones are the kernel's own: what
 * as_open gives for a file here can be used with any system call, and every as_ call works on descriptors that open(2), pipe(2)
 * or dup(2) gave.
 */
#define NF_FD_MIN 0x40000000

/* A flag for as_open: writes return when they are sent. See fdflush. open(2) has given this bit to nothing. */
#define NF_OBEHIND 0x40000000

/*
 * Opens a file, as open(2): flags are O_RDONLY, O_WRONLY or O_RDWR with O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECTORY, O_NOFOLLOW, O_SYNC,
 * O_DSYNC, O_CLOEXEC, O_NOCTTY, O_NONBLOCK, O_NOATIME and OBEHIND; mode is looked at with O_CREAT, and the umask is taken from
 * it. On a server O_DIRECT, O_PATH, O_TMPFILE and O_ASYNC are -EINVAL. O_APPEND: see docs/c.md for what servers can.
 */
int nf_as_open(const char *name, int flags, unsigned int mode);

/*
 * read(2), pread(2), write(2), pwrite(2). From a server fewer bytes come at the end of the file, or where it gives fewer at a
 * time; 0 is the end. Counts over 0x7ffff000 are cut to it.
 */
ssize_t nf_as_read(int fd, void *buf, size_t count);
ssize_t nf_as_pread(int fd, void *buf, size_t count, long long offset);
ssize_t nf_as_write(int fd, const void *buf, size_t count);
ssize_t nf_as_pwrite(int fd, const void *buf, size_t count, long long offset);

/* lseek(2). SEEK_DATA and SEEK_HOLE: a server that does not know holes has one, at the end. */
long long nf_as_lseek(int fd, long long offset, int whence);

/* fstat(2). st_dev of a file of a server is no device of this machine, and the same for all files of one server. */
int nf_as_fstat(int fd, struct stat *st);

/* ftruncate(2) and fsync(2). */
int nf_as_ftruncate(int fd, long long length);
int nf_as_fsync(int fd);

/*
 * close(2). The number is not given again soon. An error is of what was written with OBEHIND and not told yet, or what the server
 * says to the end; the descriptor is closed all the same.
 */
int nf_as_close(int fd);

/*
 * Waits until all that was written with OBEHIND is written, and gives the first error that was not told yet. An error that comes
 * up between two calls is kept, and told once: by the next write, fdflush or as_close.
 */
int nf_fdflush(int fd);

/*
 * A stream: the bytes of a file in order, over a connection of their own where the server has that, else by many
 * requests at a time (compatibility mode); here by pread(2) and pwrite(2), or read(2) and write(2) where there are no offsets.
 */
typedef struct NfStream NfStream;

/*
 * Begins to read (isread 1) or write (isread 0) the file that fd is, open for that, from offset on, 0 or more. The stream's place is its own: it
 * neither follows nor moves the descriptor's. as_close of the descriptor leaves the stream to its end.
 * NULL: errno says why.
 */
NfStream *nf_stream(int fd, long long offset, char isread);

/*
 * The same for length bytes, or to the end with 0. Writing, more than that is -EFBIG, and less is -EPIPE from sclose. Where it gives
 * NULL, *error is the negative number, unless error is NULL.
 */
NfStream *nf_stream_range(int fd, long long offset, long long length, char isread, int *error);

/*
 * The next bytes, as many as are there and at most n. 0 is the end: the stream has been compared with what the server sent, and is
 * whole. A stream that was cut short gives an error there, and for ever.
 */
long nf_sread(NfStream *s, void *buf, long n);

/*
 * Takes n bytes, all of them unless it fails. An error may be of earlier ones; it is given for ever. Fewer than n, of a stream that lends regions: so many
 * are taken, and what went wrong behind them is in errno, and met again by the next call.
 */
long nf_swrite(NfStream *s, const void *buf, long n);

/*
 * Ends and frees it; the file stays open. Writing, it waits until all bytes are in the file. The error is what went wrong with
 * the stream on either side, told before or not. A read stream may be ended before its end.
 * -EBUSY, of a stream that lends regions: some are not freed, and the stream goes on.
 */
int nf_sclose(NfStream *s);

/*
 * The Alloc Stream Interface (Krieger, Stumm and Unrau, CSRI-275, 1994, figure 5): the stream lends its own memory, or the file's, so that
 * nothing is copied. salloc gives a region, the next bytes of the stream; sfree gives it back. A region stays until it is freed, in any order
 * and by any thread, whatever is done with the stream meanwhile; sread and swrite may come between any two of these calls.
 *
 * A stream is in one of two modes. In read mode regions hold data; do not write to them: it changes nothing but that region (of a pipe, a socket or a terminal also what of it
 * srealloc gives back to the next one); where the region is the file's own memory it is a SIGSEGV. In write mode they are room for data, whose bytes are unspecified until they are
 * written. What was freed every stream of this process on the file sees, and the file is longer for them from then on. It goes to the file
 * in the order of salloc: not before every region that was allocated earlier on that stream is free.
 *
 * Lengths. *length says how many bytes are wanted, 0 or more, and then how many there are: fewer in read mode where the file
 * ends, and of a pipe, a socket or a terminal what is there, one byte at least. NULL with *length 0 is the end, or that none were wanted;
 * NULL with a negative *length is that error.
 *
 * Errors are told by the call that met them. What cannot be written is kept, and is tried again by each salloc that needs memory, sflush
 * and sclose; sclose alone gives it up. A region that is no region of the stream, or was freed and not lent again since, is -EINVAL, and nothing
 * is done.
 *
 * Of a terminal what was freed is written when a line ends in it, and before any stream of this process waits for a terminal. Of a directory, opened to read, salloc
 * lends one entry at a time, a struct dirent64, and sposition, sftell and d_off are places to seek to, as is 0; no others are.
 *
 * Threads share a stream: each call is atomic, sallocAt too, and the stream is not locked while data is looked at or written. Not
 * from handlers of signals.
 *
 * What stream() gave is such a stream from the first of these calls on that is made on it, in the one mode that it was given for: then swrite
 * is in the file by sflush and sclose. Of what nf_stream_range gave for a length regions cannot be had: -EOPNOTSUPP.
 *
 * A file of a server is read where its bytes arrive, and written by requests that are not waited for before sflush, where it is in the file at the
 * server. What such a request could not write is not kept: each call behind it that writes, and sclose, gives that error. Where a file is no plain one, or
 * has no version and no size, salloc gives what comes, as of a pipe.
 */

/* The modes, as figure 7 numbers them. */
#define NF_SA_READ 0
#define NF_SA_WRITE 1

/*
 * Opens a file: flags and mode are open(2)'s, without O_DIRECT and O_PATH, and of a server as as_open has them; it is closed by exec(3). Opened to
 * read only it is in read mode, else in write mode. NULL: *error is the negative number, unless error is NULL. exit(3) does not flush it.
 */
NfStream *nf_sopen(const char *name, int flags, int mode, int *error);

/* The same with the stream module of that name (docs/stream.md) in the place of what would be chosen. -EINVAL: it is not for this. */
NfStream *nf_sopen_by(const char *name, int flags, int mode, const char *module, int *error);

/*
 * A stream on a second descriptor of what fd is. It begins where fd is, and does not move it.
 */
NfStream *nf_sdopen(int fd, int *error);

/*
 * The same with the stream module of that name: "ring" at both ends of a pair of Unix sockets hands over in memory that both processes have
 * (docs/stream.md, "Rings"). -EINVAL: it is not for this; of a server's file there is no choice.
 */
NfStream *nf_sdopen_by(int fd, const char *module, int *error);

/* The next *length bytes; the stream's offset moves behind them. */
void *nf_salloc(NfStream *s, long *length);

/* Gives a region back. An error is of writing, and the region is free; or -EINVAL, see above; -EIO: the file was cut while it was looked at. */
int nf_sfree(NfStream *s, void *region);

/*
 * Makes the region that was allocated last length bytes long, at another address perhaps, and with the data it had as far as it goes; the
 * offset follows its end. With 0 it is still to be freed, has an address for its own, and can get no longer. NULL: the number is in errno, and the region is as it was.
 * EINVAL: another was allocated since; ENODATA: in read mode, the file has not so many bytes; ESPIPE: in read mode, what is no file does
 * not make a region longer than what is at hand.
 */
void *nf_srealloc(NfStream *s, void *region, long length);

/* The same, and in read mode as long as the file has it. *length is then how long it is, or with NULL the negative number. */
void *nf_sresize(NfStream *s, void *region, long *length);

/*
 * Moves the offset as lseek(2) with SEEK_SET, SEEK_CUR or SEEK_END, and allocates there, in one step: calls of other threads come before
 * or after both. With *length 0 it only moves. When it fails the offset does not move.
 */
void *nf_sallocAt(NfStream *s, long *length, long long offset, int whence);

/*
 * What was freed is in the file, and outlives this process. -EBUSY: a region that was allocated before freed data is not free; nothing is
 * lost. ssync is the same and fdatasync(2).
 */
int nf_sflush(NfStream *s);
int nf_ssync(NfStream *s);

/* Changes the mode to SA_READ or SA_WRITE. -EBADF: it is not open for that. */
int nf_set_stream_mode(NfStream *s, int mode);

/* As the calls without a capital, in the mode that is named: the stream changes to it. A region keeps its own, so Srealloc needs that one. */
void *nf_Salloc(NfStream *s, int mode, long *length);
void *nf_SallocAt(NfStream *s, int mode, long *length, long long offset, int whence);
void *nf_Srealloc(NfStream *s, int mode, void *region, long length);

/*
 * LockAsfStream keeps other threads out until UnlockAsfStream: the calls of this one are one. It may be nested. Other streams of this process on
 * the same file wait too, and so do their sopen and sclose; a thread unlocks before it ends. Unlock is -EPERM where this
 * thread has not the lock; sclose ends it.
 * The calls with u_ are for a thread that has the lock, and do not lock again; without it they lock.
 */
int nf_LockAsfStream(NfStream *s);
int nf_UnlockAsfStream(NfStream *s);
void *nf_u_salloc(NfStream *s, long *length);
int nf_u_sfree(NfStream *s, void *region);
void *nf_u_srealloc(NfStream *s, void *region, long length);
void *nf_u_sallocAt(NfStream *s, long *length, long long offset, int whence);
int nf_u_sflush(NfStream *s);
void *nf_u_Salloc(NfStream *s, int mode, long *length);
void *nf_u_SallocAt(NfStream *s, int mode, long *length, long long offset, int whence);
int nf_u_set_stream_mode(NfStream *s, int mode);

/* salloc, which waits for all *length bytes of a pipe, a socket or a terminal too, or the end. With -EINTR or -EAGAIN nothing is taken: what has come stays. */
void *nf_salloc_full(NfStream *s, long *length);

/* salloc, at an address that is a multiple of align, a power of two up to 4096 (section 4.4). Data that lies elsewhere is copied. */
void *nf_salloc_aligned(NfStream *s, long *length, long align);

/* The next line with its '\n', which the last may lack, in read mode. What *length was does not matter. */
void *nf_salloc_line(NfStream *s, long *length);

/* The bytes up to delimiter, with it, but *length at most, in read mode. */
void *nf_salloc_until(NfStream *s, long *length, int delimiter);

/*
 * A hint (section 4.4): from now on this thread alone uses the stream, and takes no lock. When that is wrong it costs the next call of
 * another thread some time. A stream begins with it, for the thread that opens.
 */
int nf_sclaim(NfStream *s);

/*
 * Copies bytes, or what there is to the end, from where one stream is to where the other is, and gives how many: by the kernel between
 * plain files, else from region to region. After an error both are behind what was copied.
 */
long long nf_scopy(NfStream *from, NfStream *to, long long bytes);

/*
 * spush puts a stream module on the stream by its name (section 6.1): "gzip" and "zstd" decompress what it reads, "prefetch" reads ahead in
 * a thread. The stream only reads then. spop takes off the last. -EINVAL: there is no such module, or none to take off; -EBUSY: a region
 * that is written is not free. Damaged data is -EBADMSG, from the call that asks for it. docs/stream.md says more.
 * smodule gives the name of the one on top.
 */
int nf_spush(NfStream *s, const char *module);
int nf_spop(NfStream *s);
const char *nf_smodule(NfStream *s);

/*
 * Descriptors of streams. nf_sfileno gives a descriptor for the calls of Unix I/O above; several may be of one stream, nf_as_dup gives more. Stream and descriptors
 * have one offset, and what was freed or written by one call every other sees: as_read, salloc, sgetc in any order are the stream's bytes in order.
 * as_write is in the stream, and in the file by as_close, as_fsync, fdflush and sflush, which tell errors; opened with O_APPEND each is
 * written at once, in one piece among all processes: one write(2), whose count or error it gives, but while a region is out; then it waits for that, and is told by
 * what flushes. as_pread, as_pwrite, as_fstat and as_ftruncate flush first: -EBUSY while freed data waits for a region that is
 * out; -ESPIPE where the stream has no places. A descriptor ends with as_close, which leaves the stream, and with its stream. Its number is NF_FD_MIN or more: a system
 * call on it is EBADF. sclose is -EBUSY while a thread is in a call by one. Of a file of a server, or of a length: -EOPNOTSUPP.
 */
int nf_sfileno(NfStream *s);

/* dup(2), of the kernel's descriptors and of those of streams. The copies share their offset. Of a file of a server: -EOPNOTSUPP. */
int nf_as_dup(int fd);

/*
 * The stream that fd is of. Of a descriptor of the kernel's a new one, as sdopen gives it, which besides moves the descriptor's own offset to its own at sflush and
 * sclose: whoever shares the descriptor by dup(2) or fork(2), another program too, goes on where the stream was. Between nf_as_stream and that nobody else
 * reads or writes by it: one at a time has the offset (POSIX.1-2024, XSH 2.5.1).
 */
NfStream *nf_as_stream(int fd, int *error);

/* The stream's offset; of a directory the place of the next entry; of what has no places, the bytes that passed. */
long long nf_sposition(NfStream *s);

/*
 * Standard I/O, on the same streams: each call is as the one of stdio.h whose name it has behind the s, between any two of the calls above.
 * Errors are negative numbers, and in errno. Bytes that are got are 0 to 255.
 */

/* fopen(3); NULL: errno says why, EISDIR of a directory. sfclose is sclose. */
NfStream *nf_sfopen(const char *name, const char *mode);
int nf_sfclose(NfStream *s);

/*
 * fread(3) and fwrite(3): items, fewer only at the end. A negative number: an error before the first whole item; behind it the next call tells. What
 * has come of an item that an error cut is read next.
 */
long nf_sfread(void *to, size_t size, size_t items, NfStream *s);
long nf_sfwrite(const void *from, size_t size, size_t items, NfStream *s);

/* A byte; EOF, which is -1, at the end. sputc gives the byte. */
int nf_sgetc(NfStream *s);
int nf_sputc(int byte, NfStream *s);

/* 0. No newline is added. */
int nf_sputs(const char *text, NfStream *s);

/* fgets(3). NULL: errno is the error, and 0 at the end. */
char *nf_sgets(char *to, int size, NfStream *s);

/*
 * Puts a byte back, any byte and several: each call on the stream reads it next, salloc too. The offset goes back by one, and at 0 it is
 * -EINVAL. sfseek and sallocAt make it what the file has, the file never changes by it.
 */
int nf_sungetc(int byte, NfStream *s);

/* fseek(3), ftell(3) and fflush(3). */
int nf_sfseek(NfStream *s, long long offset, int whence);
long long nf_sftell(NfStream *s);
int nf_sfflush(NfStream *s);

/*
 * _IOFBF, _IOLBF or _IONBF: when what these calls write goes to the file. buffer and size do not matter, for nothing is buffered here that is not
 * in the stream.
 */
int nf_ssetvbuf(NfStream *s, char *buffer, int mode, size_t size);

/* sfscanf with the va_list that rest is: vfscanf(3), which reads no further than it looks. */
int nf_svfscanf(NfStream *s, const char *form, void *rest);

/*
 * What a loop calls most, without a call: the next bytes of the stream's buffer, if this thread alone uses the stream, and the region given back. What is more than
 * that is the library's. A program that was compiled with these goes on with later libraries: they keep this layout, or own
 * nothing by NfFront, so that all is theirs; but each gives a seat of the thread's, for a byte is written there before anybody knows whose the stream is. Not where ThreadSanitizer looks: in a library that is not built with it it does not see what orders two threads.
 */
#if defined(__x86_64__) && defined(__LP64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__SANITIZE_THREAD__)
#define NF_SHORT_WAYS 1
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#undef NF_SHORT_WAYS
#endif
#endif
#endif

#ifdef NF_SHORT_WAYS

/* The stream's buffer, and behind it the first place of the list of regions that are out. */
typedef struct NfBuffer {
    unsigned char *at;
    size_t left, lent, freed;
    unsigned char *base;
    size_t all;
    unsigned long long seen;
    const unsigned long long *changes;
    unsigned char *first;
    unsigned long long offset;
    unsigned char mode, live, loud;
    unsigned char *region;
    size_t region_bytes;
    unsigned char region_mode;
} NfBuffer;

/* What an NfStream begins with. */
typedef struct NfFront {
    unsigned char *const *owner;
    NfBuffer *buffer;
    long seat;
} NfFront;

/*
 * Begins a short way, and tells whether the buffer may be used until NfEnd. A thread tells in its seat, one byte, that it is busy, and looks then whether it
 * owns the stream. Who ends that first writes the owner, then lets all threads execute a fence (membarrier(2)), then waits for the seat.
 */
static inline int NfBegin(const NfStream *s, unsigned char **seat)
{
    const NfFront *front = (const NfFront *)(const void *)s;
    unsigned char *const *owner = __atomic_load_n(&front->owner, __ATOMIC_ACQUIRE);
    __asm__ volatile("{movq %%fs:(%1), %0|mov %0, qword ptr fs:[%1]}" : "=r"(*seat) : "r"(front->seat));
    __atomic_store_n(*seat, 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (__builtin_expect(__atomic_load_n(owner, __ATOMIC_RELAXED) == *seat, 1))
        return 1;
    __atomic_store_n(*seat, 0, __ATOMIC_RELEASE);
    return 0;
}

static inline NfBuffer *NfBufferOf(NfStream *s) { return ((const NfFront *)(void *)s)->buffer; }

static inline void NfEnd(unsigned char *seat) { __atomic_store_n(seat, 0, __ATOMIC_RELEASE); }

/* What was read is as the file was when somebody in this process changed it last. What is written always is. */
static inline int NfIsFresh(const NfBuffer *b) { return b->seen == __atomic_load_n(b->changes, __ATOMIC_RELAXED); }

/* A region of bytes that are there. */
static inline void *NfLend(NfBuffer *b, size_t bytes)
{
    unsigned char *region = b->at;
    if (b->mode != NF_SA_READ && b->lent == b->freed)
        b->first = region;
    b->region = region;
    b->region_bytes = bytes;
    b->region_mode = b->mode;
    b->lent++;
    b->at = region + bytes;
    b->left -= bytes;
    return region;
}

static inline void *NfAlloc(NfStream *s, long *length)
{
    unsigned char *seat;
    if (s != NULL && length != NULL && NfBegin(s, &seat)) {
        NfBuffer *b = NfBufferOf(s);
        size_t bytes = (size_t)*length;
        /* Of 0 bytes one less is more than there can be, and so is what is negative. */
        if (__builtin_expect(bytes - 1 < b->left && b->region == NULL && NfIsFresh(b), 1)) {
            void *region = NfLend(b, bytes);
            NfEnd(seat);
            return region;
        }
        NfEnd(seat);
    }
    return nf_salloc(s, length);
}

static inline int NfFree(NfStream *s, void *region)
{
    unsigned char *seat;
    if (s != NULL && NfBegin(s, &seat)) {
        NfBuffer *b = NfBufferOf(s);
        /* No buffer covers NULL. */
        if (__builtin_expect(b->region == region && (size_t)region - (size_t)b->base < b->all
                    && (b->mode == NF_SA_READ ? NfIsFresh(b) : b->lent - b->freed == 1 && !b->loud), 1)) {
            b->region = NULL;
            b->freed++;
            NfEnd(seat);
            return 0;
        }
        NfEnd(seat);
    }
    return nf_sfree(s, region);
}

static inline void *NfAllocLine(NfStream *s, long *length)
{
    unsigned char *seat;
    if (s != NULL && length != NULL && NfBegin(s, &seat)) {
        NfBuffer *b = NfBufferOf(s);
        if (__builtin_expect(b->mode == NF_SA_READ && b->left > 0 && b->region == NULL && NfIsFresh(b), 1)) {
            const unsigned char *end = (const unsigned char *)__builtin_memchr(b->at, '\n', b->left);
            if (__builtin_expect(end != NULL, 1)) {
                size_t bytes = (size_t)(end - b->at) + 1;
                void *region = NfLend(b, bytes);
                NfEnd(seat);
                *length = (long)bytes;
                return region;
            }
        }
        NfEnd(seat);
    }
    return nf_salloc_line(s, length);
}

static inline int NfGet(NfStream *s)
{
    unsigned char *seat;
    if (s != NULL && NfBegin(s, &seat)) {
        NfBuffer *b = NfBufferOf(s);
        if (__builtin_expect(b->mode == NF_SA_READ && b->left > 0 && NfIsFresh(b), 1)) {
            int byte = *b->at;
            b->at++;
            b->left--;
            NfEnd(seat);
            return byte;
        }
        NfEnd(seat);
    }
    return nf_sgetc(s);
}

#else

static inline void *NfAlloc(NfStream *s, long *length) { return nf_salloc(s, length); }
static inline int NfFree(NfStream *s, void *region) { return nf_sfree(s, region); }
static inline void *NfAllocLine(NfStream *s, long *length) { return nf_salloc_line(s, length); }
static inline int NfGet(NfStream *s) { return nf_sgetc(s); }

#endif /* NF_SHORT_WAYS */

#ifdef __cplusplus
}
#endif

#ifndef NF_NO_SHORT_NAMES

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define OBEHIND NF_OBEHIND

typedef NfStream Stream;

static inline int as_open(const char *name, int flags, ...)
{
    unsigned int mode = 0;
    int takes_mode = (flags & O_CREAT) != 0;
#ifdef O_TMPFILE
    takes_mode = takes_mode || (flags & O_TMPFILE) == O_TMPFILE;
#endif
    if (takes_mode) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, unsigned int);
        va_end(rest);
    }
    return nf_as_open(name, flags, mode);
}

static inline ssize_t as_read(int fd, void *buf, size_t count) { return nf_as_read(fd, buf, count); }
static inline ssize_t as_pread(int fd, void *buf, size_t count, long long offset) { return nf_as_pread(fd, buf, count, offset); }
static inline ssize_t as_write(int fd, const void *buf, size_t count) { return nf_as_write(fd, buf, count); }
static inline ssize_t as_pwrite(int fd, const void *buf, size_t count, long long offset) { return nf_as_pwrite(fd, buf, count, offset); }
static inline long long as_lseek(int fd, long long offset, int whence) { return nf_as_lseek(fd, offset, whence); }
static inline int as_fstat(int fd, struct stat *st) { return nf_as_fstat(fd, st); }
static inline int as_ftruncate(int fd, long long length) { return nf_as_ftruncate(fd, length); }
static inline int as_fsync(int fd) { return nf_as_fsync(fd); }
static inline int as_close(int fd) { return nf_as_close(fd); }
static inline int fdflush(int fd) { return nf_fdflush(fd); }

static inline Stream *stream(int fd, long long offset, char isread) { return nf_stream(fd, offset, isread); }
static inline long sread(Stream *s, void *buf, long n) { return nf_sread(s, buf, n); }
static inline long swrite(Stream *s, const void *buf, long n) { return nf_swrite(s, buf, n); }
static inline int sclose(Stream *s) { return nf_sclose(s); }

#define SA_READ NF_SA_READ
#define SA_WRITE NF_SA_WRITE

static inline Stream *sopen(const char *name, int flags, int mode, int *error) { return nf_sopen(name, flags, mode, error); }
static inline Stream *sopen_by(const char *name, int flags, int mode, const char *module, int *error) { return nf_sopen_by(name, flags, mode, module, error); }
static inline Stream *sdopen(int fd, int *error) { return nf_sdopen(fd, error); }
static inline Stream *sdopen_by(int fd, const char *module, int *error) { return nf_sdopen_by(fd, module, error); }
static inline void *salloc(Stream *s, long *length) { return NfAlloc(s, length); }
static inline int sfree(Stream *s, void *region) { return NfFree(s, region); }
static inline void *srealloc(Stream *s, void *region, long length) { return nf_srealloc(s, region, length); }
static inline void *sresize(Stream *s, void *region, long *length) { return nf_sresize(s, region, length); }
static inline void *sallocAt(Stream *s, long *length, long long offset, int whence) { return nf_sallocAt(s, length, offset, whence); }
static inline int sflush(Stream *s) { return nf_sflush(s); }
static inline int ssync(Stream *s) { return nf_ssync(s); }
static inline int set_stream_mode(Stream *s, int mode) { return nf_set_stream_mode(s, mode); }
static inline void *Salloc(Stream *s, int mode, long *length) { return nf_Salloc(s, mode, length); }
static inline void *SallocAt(Stream *s, int mode, long *length, long long offset, int whence) { return nf_SallocAt(s, mode, length, offset, whence); }
static inline void *Srealloc(Stream *s, int mode, void *region, long length) { return nf_Srealloc(s, mode, region, length); }
static inline int LockAsfStream(Stream *s) { return nf_LockAsfStream(s); }
static inline int UnlockAsfStream(Stream *s) { return nf_UnlockAsfStream(s); }
static inline void *u_salloc(Stream *s, long *length) { return NfAlloc(s, length); }
static inline int u_sfree(Stream *s, void *region) { return NfFree(s, region); }
static inline void *u_srealloc(Stream *s, void *region, long length) { return nf_u_srealloc(s, region, length); }
static inline void *u_sallocAt(Stream *s, long *length, long long offset, int whence) { return nf_u_sallocAt(s, length, offset, whence); }
static inline int u_sflush(Stream *s) { return nf_u_sflush(s); }
static inline void *u_Salloc(Stream *s, int mode, long *length) { return nf_u_Salloc(s, mode, length); }
static inline void *u_SallocAt(Stream *s, int mode, long *length, long long offset, int whence) { return nf_u_SallocAt(s, mode, length, offset, whence); }
static inline int u_set_stream_mode(Stream *s, int mode) { return nf_u_set_stream_mode(s, mode); }
static inline void *salloc_full(Stream *s, long *length) { return nf_salloc_full(s, length); }
static inline void *salloc_aligned(Stream *s, long *length, long align) { return nf_salloc_aligned(s, length, align); }
static inline void *salloc_line(Stream *s, long *length) { return NfAllocLine(s, length); }
static inline void *salloc_until(Stream *s, long *length, int delimiter) { return nf_salloc_until(s, length, delimiter); }
static inline int sclaim(Stream *s) { return nf_sclaim(s); }
static inline long long scopy(Stream *from, Stream *to, long long bytes) { return nf_scopy(from, to, bytes); }
static inline int spush(Stream *s, const char *module) { return nf_spush(s, module); }
static inline int spop(Stream *s) { return nf_spop(s); }
static inline const char *smodule(Stream *s) { return nf_smodule(s); }
static inline int sfileno(Stream *s) { return nf_sfileno(s); }
static inline int as_dup(int fd) { return nf_as_dup(fd); }
static inline Stream *as_stream(int fd, int *error) { return nf_as_stream(fd, error); }
static inline long long sposition(Stream *s) { return nf_sposition(s); }

static inline Stream *sfopen(const char *name, const char *mode) { return nf_sfopen(name, mode); }
static inline int sfclose(Stream *s) { return nf_sfclose(s); }
static inline long sfread(void *to, size_t size, size_t items, Stream *s) { return nf_sfread(to, size, items, s); }
static inline long sfwrite(const void *from, size_t size, size_t items, Stream *s) { return nf_sfwrite(from, size, items, s); }
static inline int sgetc(Stream *s) { return NfGet(s); }
static inline int sputc(int byte, Stream *s) { return nf_sputc(byte, s); }
static inline int sputs(const char *text, Stream *s) { return nf_sputs(text, s); }
static inline char *sgets(char *to, int size, Stream *s) { return nf_sgets(to, size, s); }
static inline int sungetc(int byte, Stream *s) { return nf_sungetc(byte, s); }
static inline int sfseek(Stream *s, long long offset, int whence) { return nf_sfseek(s, offset, whence); }
static inline long long sftell(Stream *s) { return nf_sftell(s); }
static inline int sfflush(Stream *s) { return nf_sfflush(s); }
static inline int ssetvbuf(Stream *s, char *buffer, int mode, size_t size) { return nf_ssetvbuf(s, buffer, mode, size); }

/* A va_list is an array on some machines and a pointer or a structure on others: this is what a function gets that has it as a parameter. */
#if defined(__x86_64__)
#define NF_REST(list) ((void *)(list))
#elif defined(__aarch64__)
#define NF_REST(list) ((void *)&(list))
#endif

#ifdef NF_REST
static inline int svfscanf(Stream *s, const char *form, va_list rest) { return nf_svfscanf(s, form, NF_REST(rest)); }

static inline int sfscanf(Stream *s, const char *form, ...)
{
    int matched;
    va_list rest;
    va_start(rest, form);
    matched = svfscanf(s, form, rest);
    va_end(rest);
    return matched;
}
#endif

/* vfprintf(3): bytes written, in one piece. */
static inline int svfprintf(Stream *s, const char *form, va_list rest)
{
    char small[512], *text = small;
    int length, result;
    va_list again;
    va_copy(again, rest);
    length = vsnprintf(small, sizeof small, form, rest);
    if (length >= (int)sizeof small) {
        text = (char *)malloc((size_t)length + 1);
        if (text != NULL)
            length = vsnprintf(text, (size_t)length + 1, form, again);
    }
    va_end(again);
    result = text == NULL || length < 0 ? -errno : (int)nf_sfwrite(text, 1, (size_t)length, s);
    if (text != small)
        free(text);
    return result;
}

static inline int sfprintf(Stream *s, const char *form, ...)
{
    int length;
    va_list rest;
    va_start(rest, form);
    length = svfprintf(s, form, rest);
    va_end(rest);
    return length;
}

#endif /* NF_NO_SHORT_NAMES */

#endif /* NINEFOLD_H */
