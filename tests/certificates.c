#include "tests/certificates.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <gnutls/abstract.h>
#include <gnutls/x509.h>

#include "tests/scratch.h"

static void write_pem(const char *name, const char *ending, gnutls_datum_t *pem)
{
    char file[64];
    (void)snprintf(file, sizeof file, "%s.%s", name, ending);
    (void)scratch_write(file, pem->data, pem->size);
    gnutls_free(pem->data);
}

void certificate_make(const char *name, const char *common_name, int days, const char *password)
{
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t c;
    gnutls_datum_t pem = {0};
    const unsigned char serial = 1;
    struct in_addr loopback = {.s_addr = htonl(INADDR_LOOPBACK)};
    time_t begin = time(NULL) - 3600 - (days < 0 ? 1000 * 86400 : 0);
    time_t end = days < 0 ? time(NULL) + (time_t)days * 86400 : begin + (time_t)days * 86400;

    assert_int_equal(gnutls_x509_privkey_init(&key), 0);
    assert_int_equal(gnutls_x509_privkey_generate(
                         key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0),
                     0);
    assert_int_equal(gnutls_x509_crt_init(&c), 0);
    assert_int_equal(gnutls_x509_crt_set_version(c, 3), 0);
    assert_int_equal(gnutls_x509_crt_set_serial(c, &serial, 1), 0);
    assert_int_equal(gnutls_x509_crt_set_dn_by_oid(c, GNUTLS_OID_X520_COMMON_NAME, 0, common_name,
                                                   (unsigned)strlen(common_name)),
                     0);
    assert_int_equal(gnutls_x509_crt_set_activation_time(c, begin), 0);
    assert_int_equal(gnutls_x509_crt_set_expiration_time(c, end), 0);
    assert_int_equal(gnutls_x509_crt_set_subject_alt_name(c, GNUTLS_SAN_DNSNAME, "localhost", 9,
                                                          GNUTLS_FSAN_SET),
                     0);
    assert_int_equal(gnutls_x509_crt_set_subject_alt_name(c, GNUTLS_SAN_IPADDRESS, &loopback, 4,
                                                          GNUTLS_FSAN_APPEND),
                     0);
    assert_int_equal(gnutls_x509_crt_set_basic_constraints(c, 1, -1), 0);
    assert_int_equal(gnutls_x509_crt_set_key(c, key), 0);
    assert_int_equal(gnutls_x509_crt_sign2(c, c, key, GNUTLS_DIG_SHA256, 0), 0);

    assert_int_equal(gnutls_x509_crt_export2(c, GNUTLS_X509_FMT_PEM, &pem), 0);
    write_pem(name, "crt", &pem);
    int rc = password == NULL
                 ? gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &pem)
                 : gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, password,
                                                     GNUTLS_PKCS_PBES2_AES_256, &pem);
    assert_int_equal(rc, 0);
    write_pem(name, "key", &pem);
    gnutls_x509_crt_deinit(c);
    gnutls_x509_privkey_deinit(key);
}

static const char *option(const char *key, const char *name, const char *ending)
{
    static char text[4][400];
    static unsigned next;
    char file[64], *out = text[next++ % 4];
    (void)snprintf(file, sizeof file, "%s.%s", name, ending);
    (void)snprintf(out, sizeof text[0], "%s=%s", key, scratch_path(file));
    return out;
}

const char *certificate_option(const char *name)
{
    return option("tls.certificate_file", name, "crt");
}

const char *certificate_key_option(const char *name)
{
    return option("tls.key_file", name, "key");
}
