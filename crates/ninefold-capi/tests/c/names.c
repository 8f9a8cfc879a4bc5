/* The header's names are functions, in C and in C++: none is in the way of a program's own. */
#include "ninefold.h"

#include <stdio.h>

struct holder {
    FILE *stream;
    int sread;
};

static int used(FILE *stream, int as_open)
{
    struct holder holder;
    holder.stream = stream;
    holder.sread = as_open;
    return holder.stream != NULL && holder.sread;
}

#ifdef NF_NO_SHORT_NAMES
/* All of them are the program's. */
static int stream, sread, swrite, sclose, fdflush, as_open, as_read, as_close;
typedef int Stream;
#ifdef OBEHIND
#error "OBEHIND is defined"
#endif
#endif

int main(void)
{
#ifdef NF_NO_SHORT_NAMES
    Stream sum = stream + sread + swrite + sclose + fdflush + as_open + as_read + as_close;
    return sum + (nf_sclose(NULL) < 0 ? 0 : 1) + !used(stdin, 1);
#else
    Stream *none = NULL;
    return (sclose(none) < 0 && (OBEHIND) == NF_OBEHIND && used(stdin, 1)) ? 0 : 1;
#endif
}
