/* accept.h: what a client may be sent and what it has sent: Accept, Accept-Encoding, Content-Type and
 * Content-Encoding, as RFC 9110 defines them (sections 12.5, 8.3, 8.4). No memory is taken.
 *
 * A field may stand in several lines; each call takes all of them. What is not well-formed in Accept and
 * Accept-Encoding is passed over, as if that element were not there: a client that cannot spell its wishes
 * gets the default. What is not well-formed in the fields that describe a body is refused. */
#ifndef SRV_ACCEPT_H
#define SRV_ACCEPT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

/* The lines of one field. n = 0: it is absent. */
typedef struct {
    const char *const *line;
    size_t n;
} srv_lines;

/* --- media types ------------------------------------------------------------------------------ */

#define SRV_NO_OFFER SIZE_MAX

/* The offer that the client likes best, SRV_NO_OFFER when it takes none. `offers` are media types without
 * parameters, "application/json", in lower case, ours first: an earlier one wins where the weights are the
 * same, and without Accept. For each offer the most specific range counts; parameters other than a charset
 * of UTF-8 make a range less specific than the bare type, and it fits nevertheless. */
size_t srv_accept_type(srv_lines accept, const char *const *offers, size_t n);

/* Content-Type: the index of its essence in `types`; *out = n when the field is absent or empty.
 * ATTN_EUNSUPPORTED with a sentence that names the types: another type, several fields, no media type at
 * all, a charset other than UTF-8. */
ATTN_NODISCARD attn_status srv_content_type(srv_lines fields, const char *const *types, size_t n,
                                            size_t *out, attn_error *err);

/* "a", "a or b", "a, b or c", as much as fits. */
void srv_name_types(char *out, size_t size, const char *const *types, size_t n);

/* --- content codings -------------------------------------------------------------------------- */

typedef enum { SRV_IDENTITY, SRV_GZIP, SRV_DEFLATE, SRV_CODINGS } srv_coding;
extern const char *const srv_coding_names[SRV_CODINGS]; /* "identity", "gzip", "deflate" */

/* How much the client likes each coding, 0 to 1000. */
typedef struct {
    int weight[SRV_CODINGS];
    bool named[SRV_CODINGS]; /* it stands there by its name, and not only as "*" */
} srv_codings;

srv_codings srv_accept_codings(srv_lines accept_encoding);

/* The coding for an answer, among identity and those whose bit (1u << coding) is set in `ours`: the one with
 * the highest weight that was asked for by its name; gzip before deflate before identity where they weigh
 * the same. With `floats` a coding must be liked better than identity by the client's own word ("gzip" beside
 * "identity;q=0.5"): numbers hardly shrink, and most clients send Accept-Encoding without a thought. False:
 * identity is excluded ("identity;q=0"), and so is all that is ours. */
bool srv_choose_coding(const srv_codings *c, unsigned ours, bool floats, srv_coding *out);

/* Content-Encoding: *out = the coding of the body. ATTN_EUNSUPPORTED with a sentence that names what is
 * understood: a coding whose bit is not set in `known`, or more than one. "x-gzip" is gzip. */
ATTN_NODISCARD attn_status srv_content_coding(srv_lines fields, unsigned known, srv_coding *out,
                                              attn_error *err);

#endif
