/* certificates.h: certificates that sign themselves, made for a test. */
#ifndef TESTS_CERTIFICATES_H
#define TESTS_CERTIFICATES_H

/* Writes NAME.crt and NAME.key into the scratch folder: a certificate for localhost and 127.0.0.1 with this common name,
 * valid from an hour ago for so many days; below 0 it has ended already. `password` NULL = the key has none. */
void certificate_make(const char *name, const char *common_name, int days, const char *password);

/* "tls.certificate_file=...", "tls.key_file=...": for --set; each of the last four stays valid. */
const char *certificate_option(const char *name);
const char *certificate_key_option(const char *name);

#endif
