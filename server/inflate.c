#include "server/inflate.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#define ZLIB_CONST
#include <zlib.h>

enum {
    PIECE = 16 << 10, /* what the sink gets at a time */
    MOST_AT_ONCE = 1 << 30,
    WINDOW_BITS = 15,
    GZIP_FORMAT = 16 /* added to the above */
};

struct srv_inflate {
    z_stream stream;
    srv_coding coding;
    uint64_t max_bytes;
    srv_sink *sink;
    void *sink_arg;
    uint64_t in, out;
    bool ended; /* at the end of a member */
    bool later; /* not the first member */
    unsigned char piece[PIECE];
};

attn_status srv_inflate_new(srv_inflate **out, srv_coding coding, uint64_t max_bytes,
                            srv_sink *sink, void *sink_arg, attn_error *err)
{
    srv_inflate *z = malloc(sizeof *z);

    *out = NULL;
    if (z == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory to decode a body");
    *z =
        (srv_inflate){.coding = coding, .max_bytes = max_bytes, .sink = sink, .sink_arg = sink_arg};
    if (inflateInit2(&z->stream, WINDOW_BITS + (coding == SRV_GZIP ? GZIP_FORMAT : 0)) != Z_OK) {
        free(z);
        return attn_fail(err, ATTN_ENOMEM, "no memory to decode a body");
    }
    *out = z;
    return ATTN_OK;
}

void srv_inflate_free(srv_inflate *z)
{
    if (z == NULL)
        return;
    (void)inflateEnd(&z->stream);
    free(z);
}

/* Holds what has come out so far against the limits. */
static attn_status check_size(const srv_inflate *z, attn_error *err)
{
    uint64_t limit = z->max_bytes;
    attn_status rc = ATTN_OK;

    if (z->out > limit) {
        rc = attn_fail(err, ATTN_ETOOBIG,
                       "the decoded body has more than %" PRIu64 " bytes (server.max_body)", limit);
    } else if (z->out > SRV_INFLATE_FREE && z->out / SRV_INFLATE_RATIO > z->in) {
        limit = z->in * SRV_INFLATE_RATIO;
        rc = attn_fail(err, ATTN_ETOOBIG,
                       "%" PRIu64 " bytes of the body decode to more than %" PRIu64
                       ": at most %u for each are read",
                       z->in, limit, SRV_INFLATE_RATIO);
    } else {
        return ATTN_OK;
    }
    if (err != NULL) {
        err->needed = (size_t)z->out;
        err->limit = (size_t)limit;
    }
    return rc;
}

static attn_status fail_data(const srv_inflate *z, int result, attn_error *err)
{
    if (result == Z_MEM_ERROR)
        return attn_fail(err, ATTN_ENOMEM, "no memory to decode a body");
    if (z->later && z->stream.total_out == 0)
        return attn_fail(err, ATTN_EINVAL, "%s body: there are bytes behind its end",
                         srv_coding_names[z->coding]);
    return attn_fail(err, ATTN_EINVAL, "%s body: damaged near byte %" PRIu64 " (%s)",
                     srv_coding_names[z->coding], z->in - z->stream.avail_in,
                     result == Z_NEED_DICT   ? "it needs a dictionary"
                     : z->stream.msg != NULL ? z->stream.msg
                                             : "zlib cannot read it");
}

/* Another member may follow in gzip; in zlib's format nothing. */
static attn_status begin_next(srv_inflate *z, attn_error *err)
{
    if (z->coding != SRV_GZIP)
        return attn_fail(err, ATTN_EINVAL, "%s body: there are bytes behind its end",
                         srv_coding_names[z->coding]);
    (void)inflateReset(&z->stream);
    z->ended = false;
    z->later = true;
    return ATTN_OK;
}

/* Decodes until the piece is full or there is nothing to read; *full says which. */
static attn_status decode(srv_inflate *z, bool *full, attn_error *err)
{
    z->stream.next_out = z->piece;
    z->stream.avail_out = PIECE;
    int result = inflate(&z->stream, Z_NO_FLUSH);
    size_t n = PIECE - z->stream.avail_out;

    *full = z->stream.avail_out == 0;
    z->ended = result == Z_STREAM_END;
    z->out += n;
    ATTN_TRY(check_size(z, err));
    if (n >
        0) /* what stands in front of damage, too: what is told first does not depend on the pieces */
        ATTN_TRY(z->sink(z->sink_arg, (const char *)z->piece, n, err));
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
        return fail_data(z, result, err);
    return ATTN_OK;
}

attn_status srv_inflate_feed(srv_inflate *z, const char *bytes, size_t n, attn_error *err)
{
    while (n > 0) {
        size_t k = n < MOST_AT_ONCE ? n : MOST_AT_ONCE;
        bool full = false;
        z->stream.next_in = (const Bytef *)bytes;
        z->stream.avail_in = (uInt)k;
        z->in += k;
        do {
            if (z->ended && z->stream.avail_in > 0)
                ATTN_TRY(begin_next(z, err));
            ATTN_TRY(decode(z, &full, err));
        } while (z->stream.avail_in > 0 || (full && !z->ended));
        bytes += k;
        n -= k;
    }
    return ATTN_OK;
}

attn_status srv_inflate_finish(const srv_inflate *z, attn_error *err)
{
    if (z->ended)
        return ATTN_OK;
    return attn_fail(err, ATTN_EINVAL, "%s body: it is cut after %" PRIu64 " bytes",
                     srv_coding_names[z->coding], z->in);
}
