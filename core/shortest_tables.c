#include "core/shortest.h"

/* tests/unit/test_shortest.c computes them again. */
const uint64_t attn_shortest_scale[256] = {
    0x23df8cb39efa971b, 0x23df8cb39efa971b, 0x47bf19673df52e37, 0x8f7e32ce7bea5c6f,
    0x1cb2d6f618c878e3, 0x3965adec3190f1c6, 0x72cb5bd86321e38c, 0xe596b7b0c643c719,
    0x2deaf189c140c16b, 0x5bd5e313828182d6, 0xb7abc627050305ad, 0x24bbf46e3433cdef,
    0x4977e8dc68679bdf, 0x92efd1b8d0cf37be, 0x1d6329f1c35ca4bf, 0x3ac653e386b9497f,
    0x758ca7c70d7292fe, 0xeb194f8e1ae525fd, 0x2f050fe938943acc, 0x5e0a1fd271287598,
    0xbc143fa4e250eb31, 0x259da6542d43623d, 0x4b3b4ca85a86c47a, 0x96769950b50d88f4,
    0x1e17b84357691b64, 0x3c2f7086aed236c8, 0x785ee10d5da46d90, 0xf0bdc21abb48db20,
    0x3025f39ef241c56c, 0x604be73de4838ad9, 0xc097ce7bc90715b3, 0x2684c2e58e9b0457,
    0x4d0985cb1d3608ae, 0x9a130b963a6c115c, 0x1ed09bead87c0378, 0x3da137d5b0f806f1,
    0x7b426fab61f00de3, 0xf684df56c3e01bc6, 0x314dc6448d9338c1, 0x629b8c891b267182,
    0xc5371912364ce305, 0x27716b6a0adc2d67, 0x4ee2d6d415b85ace, 0x9dc5ada82b70b59d,
    0x1f8def8808b02452, 0x3f1bdf10116048a5, 0x7e37be2022c0914b, 0xfc6f7c4045812296,
    0x327cb2734119d3b7, 0x64f964e68233a76f, 0xc9f2c9cd04674ede, 0x2863c1f5cdae42f9,
    0x50c783eb9b5c85f2, 0xa18f07d736b90be5, 0x204fce5e3e250261, 0x409f9cbc7c4a04c2,
    0x813f3978f8940984, 0x19d971e4fe8401e7, 0x33b2e3c9fd0803ce, 0x6765c793fa10079d,
    0xcecb8f27f4200f3a, 0x295be96e64066972, 0x52b7d2dcc80cd2e4, 0xa56fa5b99019a5c8,
    0x2116545850052128, 0x422ca8b0a00a4250, 0x84595161401484a0, 0x1a784379d99db420,
    0x34f086f3b33b6840, 0x69e10de76676d080, 0xd3c21bcecceda100, 0x2a5a058fc295ed00,
    0x54b40b1f852bda00, 0xa968163f0a57b400, 0x21e19e0c9bab2400, 0x43c33c1937564800,
    0x878678326eac9000, 0x1b1ae4d6e2ef5000, 0x3635c9adc5dea000, 0x6c6b935b8bbd4000,
    0xd8d726b7177a8000, 0x2b5e3af16b188000, 0x56bc75e2d6310000, 0xad78ebc5ac620000,
    0x22b1c8c1227a0000, 0x4563918244f40000, 0x8ac7230489e80000, 0x1bc16d674ec80000,
    0x3782dace9d900000, 0x6f05b59d3b200000, 0xde0b6b3a76400000, 0x2c68af0bb1400000,
    0x58d15e1762800000, 0xb1a2bc2ec5000000, 0x2386f26fc1000000, 0x470de4df82000000,
    0x8e1bc9bf04000000, 0x1c6bf52634000000, 0x38d7ea4c68000000, 0x71afd498d0000000,
    0xe35fa931a0000000, 0x2d79883d20000000, 0x5af3107a40000000, 0xb5e620f480000000,
    0x246139ca80000000, 0x48c2739500000000, 0x9184e72a00000000, 0x1d1a94a200000000,
    0x3a35294400000000, 0x746a528800000000, 0xe8d4a51000000000, 0x2e90edd000000000,
    0x5d21dba000000000, 0xba43b74000000000, 0x2540be4000000000, 0x4a817c8000000000,
    0x9502f90000000000, 0x1dcd650000000000, 0x3b9aca0000000000, 0x7735940000000000,
    0xee6b280000000000, 0x2faf080000000000, 0x5f5e100000000000, 0xbebc200000000000,
    0x2625a00000000000, 0x4c4b400000000000, 0x9896800000000000, 0x1e84800000000000,
    0x3d09000000000000, 0x7a12000000000000, 0xf424000000000000, 0x30d4000000000000,
    0x61a8000000000000, 0xc350000000000000, 0x2710000000000000, 0x4e20000000000000,
    0x9c40000000000000, 0x1f40000000000000, 0x3e80000000000000, 0x7d00000000000000,
    0xfa00000000000000, 0x3200000000000000, 0x6400000000000000, 0xc800000000000000,
    0x2800000000000000, 0x5000000000000000, 0xa000000000000000, 0x2000000000000000,
    0x4000000000000000, 0x8000000000000000, 0x1999999999999999, 0x3333333333333333,
    0x6666666666666666, 0xcccccccccccccccc, 0x28f5c28f5c28f5c2, 0x51eb851eb851eb85,
    0xa3d70a3d70a3d70a, 0x20c49ba5e353f7ce, 0x4189374bc6a7ef9d, 0x83126e978d4fdf3b,
    0x1a36e2eb1c432ca5, 0x346dc5d63886594a, 0x68db8bac710cb295, 0xd1b71758e219652b,
    0x29f16b11c6d1e108, 0x53e2d6238da3c211, 0xa7c5ac471b478423, 0x218def416bdb1a6d,
    0x431bde82d7b634da, 0x8637bd05af6c69b5, 0x1ad7f29abcaf4857, 0x35afe535795e90af,
    0x6b5fca6af2bd215e, 0xd6bf94d5e57a42bc, 0x2af31dc4611873bf, 0x55e63b88c230e77e,
    0xabcc77118461cefc, 0x225c17d04dad2965, 0x44b82fa09b5a52cb, 0x89705f4136b4a597,
    0x1b7cdfd9d7bdbab7, 0x36f9bfb3af7b756f, 0x6df37f675ef6eadf, 0xdbe6fecebdedd5be,
    0x2bfaffc2f2c92abf, 0x57f5ff85e592557f, 0xafebff0bcb24aafe, 0x232f33025bd42232,
    0x465e6604b7a84465, 0x8cbccc096f5088cb, 0x1c25c268497681c2, 0x384b84d092ed0384,
    0x709709a125da0709, 0xe12e13424bb40e13, 0x2d09370d42573603, 0x5a126e1a84ae6c07,
    0xb424dc35095cd80f, 0x24075f3dceac2b36, 0x480ebe7b9d58566c, 0x901d7cf73ab0acd9,
    0x1cd2b297d889bc2b, 0x39a5652fb1137856, 0x734aca5f6226f0ad, 0xe69594bec44de15b,
    0x2e1dea8c8da92d12, 0x5c3bd5191b525a24, 0xb877aa3236a4b449, 0x24e4bba3a4875741,
    0x49c97747490eae83, 0x9392ee8e921d5d07, 0x1d83c94fb6d2ac34, 0x3b07929f6da55869,
    0x760f253edb4ab0d2, 0xec1e4a7db69561a5, 0x2f394219248446ba, 0x5e72843249088d75,
    0xbce5086492111aea, 0x25c768141d369efb, 0x4b8ed0283a6d3df7, 0x971da05074da7bee,
    0x1e392010175ee596, 0x3c7240202ebdcb2c, 0x78e480405d7b9658, 0xf1c90080baf72cb1,
    0x305b66802564a289, 0x60b6cd004ac94513, 0xc16d9a0095928a27, 0x26af8533511d4ed4,
    0x4d5f0a66a23a9da9, 0x9abe14cd44753b52, 0x1ef2d0f5da7dd8aa, 0x3de5a1ebb4fbb154,
    0x7bcb43d769f762a8, 0xf79687aed3eec551, 0x318481895d962776, 0x63090312bb2c4eed,
    0xc612062576589dda, 0x279d346de4781f92, 0x4f3a68dbc8f03f24, 0x9e74d1b791e07e48,
    0x1fb0f6be50601941, 0x3f61ed7ca0c03283, 0x7ec3daf941806506, 0xfd87b5f28300ca0d,
    0x32b4bdfd4d668ecf, 0x65697bfa9acd1d9f, 0xcad2f7f5359a3b3e, 0x289097fdd7853f0c,
    0x51212ffbaf0a7e18, 0xa2425ff75e14fc31, 0x2073accb12d0ff3d, 0x40e7599625a1fe7a,
    0x81ceb32c4b43fcf4, 0x19f623d5a8a73297, 0x33ec47ab514e652e};

enum { POINT = 9, ZERO = 10 };

#define EXPONENT(e)                                                                                \
    {                                                                                              \
        .shuffle = {0, POINT, 1, 2, 3, 4, 5, 6, 7, 8}, .behind = "e-" #e ",", .behind_n = 5,       \
        .digits = 0, .point = 1, .rest = 2, .shift = 0, .end = 1                                   \
    }
#define FRACTION(zeros, ...) /* zeros behind the point */                                          \
    {                                                                                              \
        .shuffle = {ZERO, POINT, __VA_ARGS__}, .behind = ",", .behind_n = 1,                       \
        .digits = 2 + (zeros), .point = 1, .rest = 3 + (zeros), .shift = 0, .end = 2 + (zeros)     \
    }
#define WHOLE(n, ...) /* digits in front of the point */                                           \
    {                                                                                              \
        .shuffle = {__VA_ARGS__}, .behind = ",", .behind_n = 1, .digits = 0, .point = (n),         \
        .rest = 1 + (n), .shift = 8 * ((n)-1), .end = 1                                            \
    }

const attn_shortest_form attn_shortest_forms[44] = {
    EXPONENT(38),
    EXPONENT(37),
    EXPONENT(36),
    EXPONENT(35),
    EXPONENT(34),
    EXPONENT(33),
    EXPONENT(32),
    EXPONENT(31),
    EXPONENT(30),
    EXPONENT(29),
    EXPONENT(28),
    EXPONENT(27),
    EXPONENT(26),
    EXPONENT(25),
    EXPONENT(24),
    EXPONENT(23),
    EXPONENT(22),
    EXPONENT(21),
    EXPONENT(20),
    EXPONENT(19),
    EXPONENT(18),
    EXPONENT(17),
    EXPONENT(16),
    EXPONENT(15),
    EXPONENT(14),
    EXPONENT(13),
    EXPONENT(12),
    EXPONENT(11),
    EXPONENT(10),
    EXPONENT(09),
    EXPONENT(08),
    EXPONENT(07),
    EXPONENT(06),
    EXPONENT(05),
    FRACTION(3, ZERO, ZERO, ZERO, 0, 1, 2, 3, 4, 5, 6, 7, 8),
    FRACTION(2, ZERO, ZERO, 0, 1, 2, 3, 4, 5, 6, 7, 8),
    FRACTION(1, ZERO, 0, 1, 2, 3, 4, 5, 6, 7, 8),
    FRACTION(0, 0, 1, 2, 3, 4, 5, 6, 7, 8),
    WHOLE(1, 0, POINT, 1, 2, 3, 4, 5, 6, 7, 8),
    WHOLE(2, 0, 1, POINT, 2, 3, 4, 5, 6, 7, 8),
    WHOLE(3, 0, 1, 2, POINT, 3, 4, 5, 6, 7, 8),
    WHOLE(4, 0, 1, 2, 3, POINT, 4, 5, 6, 7, 8),
    WHOLE(5, 0, 1, 2, 3, 4, POINT, 5, 6, 7, 8),
    WHOLE(6, 0, 1, 2, 3, 4, 5, POINT, 6, 7, 8)};
