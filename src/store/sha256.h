/* SHA-256, by OpenSSL. */
#ifndef HC_STORE_SHA256_H
#define HC_STORE_SHA256_H

#include <stddef.h>
#include <sys/types.h>

enum { SHA256_SIZE = 32, SHA256_HEX = 64 };

/* 0, or -EIO when the library refuses. */
int sha256(const void *data, size_t length, unsigned char hash[SHA256_SIZE]);
/* Of `length` bytes of a file from `offset` on. -ENODATA: it is shorter. */
int sha256_file(int fd, off_t offset, off_t length, unsigned char hash[SHA256_SIZE]);
/* Lower case; `text` has SHA256_HEX + 1 bytes. */
void sha256_hex(const unsigned char hash[SHA256_SIZE], char *text);

#endif
