#include "server/deflate.h"

#include <stdbool.h>
#include <stdlib.h>
#include <zlib.h>

enum {
    PIECE = 16 << 10, /* asked of the source at a time */
    MOST_AT_ONCE = 1 << 30,
    LEVEL =
        1, /* digits of floats shrink to a half at once; more levels double the time for a tenth */
    WINDOW_BITS = 15,
    GZIP_FORMAT = 16, /* added to the above */
    MEMORY_LEVEL = 8
};

struct srv_deflate {
    z_stream stream;
    srv_deflate_source *source;
    void *source_arg;
    int flush; /* what zlib is asked for until its output is taken: Z_NO_FLUSH, Z_SYNC_FLUSH, Z_FINISH */
    bool dirty; /* something was put in since the last flush */
    bool ended;
    unsigned char piece[PIECE];
};

attn_status srv_deflate_new(srv_deflate **out, srv_coding coding, srv_deflate_source *source,
                            void *source_arg, attn_error *err)
{
    srv_deflate *z = malloc(sizeof *z);

    *out = NULL;
    if (z == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory to compress an answer");
    *z = (srv_deflate){.source = source, .source_arg = source_arg};
    if (deflateInit2(&z->stream, LEVEL, Z_DEFLATED,
                     WINDOW_BITS + (coding == SRV_GZIP ? GZIP_FORMAT : 0), MEMORY_LEVEL,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        free(z);
        return attn_fail(err, ATTN_ENOMEM, "no memory to compress an answer");
    }
    *out = z;
    return ATTN_OK;
}

void srv_deflate_free(srv_deflate *z)
{
    if (z == NULL)
        return;
    (void)deflateEnd(&z->stream);
    free(z);
}

/* Gets more to compress. Negative: the source has nothing now, and all that it gave is out. */
static ssize_t ask(srv_deflate *z)
{
    ssize_t got = z->source(z->source_arg, (char *)z->piece, PIECE);

    if (got < 0 && !z->dirty)
        return got;
    z->flush = got > 0 ? Z_NO_FLUSH : got == 0 ? Z_FINISH : Z_SYNC_FLUSH;
    z->dirty = got > 0;
    z->stream.next_in = z->piece;
    z->stream.avail_in = got > 0 ? (uInt)got : 0;
    return 0;
}

ssize_t srv_deflate_read(srv_deflate *z, char *out, size_t n)
{
    z->stream.next_out = (Bytef *)out;
    z->stream.avail_out = (uInt)(n < MOST_AT_ONCE ? n : MOST_AT_ONCE);
    uInt room = z->stream.avail_out;
    while (!z->ended && z->stream.avail_out > 0) {
        if (z->stream.avail_in == 0 && z->flush == Z_NO_FLUSH) {
            ssize_t pause = ask(z);
            if (pause < 0) {
                if (z->stream.avail_out < room)
                    break; /* what there is first */
                return pause;
            }
        }
        int result = deflate(&z->stream, z->flush);
        z->ended = result == Z_STREAM_END;
        if (z->flush == Z_SYNC_FLUSH && z->stream.avail_out > 0)
            z->flush = Z_NO_FLUSH; /* all is out */
    }
    return (ssize_t)(room - z->stream.avail_out);
}
