/* What the test programs share: a check that names its line, and data that tells its place. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void failed(const char *file, int line, const char *what, const char *form, ...)
{
    va_list rest;
    fprintf(stderr, "%s:%d: %s", file, line, what);
    va_start(rest, form);
    vfprintf(stderr, form, rest);
    va_end(rest);
    fputc('\n', stderr);
    exit(1);
}

/* CHECK(what must hold, "values to print", ...) */
#define CHECK(it, ...)                                      \
    do {                                                    \
        if (!(it))                                          \
            failed(__FILE__, __LINE__, #it, ": " __VA_ARGS__); \
    } while (0)

/* Two numbers that must be the same. */
#define SAME(a, b)                                                  \
    do {                                                            \
        long long a_ = (long long)(a), b_ = (long long)(b);         \
        if (a_ != b_)                                               \
            failed(__FILE__, __LINE__, #a " is " #b, ": %lld, %lld", a_, b_); \
    } while (0)

/* The byte of a file of the tests at a place. */
static inline unsigned char byte_at(long long at)
{
    unsigned long long x = (unsigned long long)at * 0x9e3779b97f4a7c15ull;
    return (unsigned char)(x >> 56);
}

static inline void fill(unsigned char *to, long long at, size_t count)
{
    size_t i;
    for (i = 0; i < count; i++)
        to[i] = byte_at(at + (long long)i);
}

/* Where bytes are not what they ought to be, or -1. */
static inline long long differs(const unsigned char *bytes, long long at, size_t count)
{
    size_t i;
    for (i = 0; i < count; i++)
        if (bytes[i] != byte_at(at + (long long)i))
            return at + (long long)i;
    return -1;
}

/* Tells the test that something has come about, and waits until it says to go on. */
static inline void report(const char *what)
{
    char word[64];
    puts(what);
    fflush(stdout);
    CHECK(fgets(word, sizeof word, stdin) != NULL, "the test is gone");
}

#endif
