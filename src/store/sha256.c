/*
 * SHA-256, by OpenSSL: by its functions for this one algorithm, which are marked as old. Those for any algorithm read a
 * configuration when they are first used, look the algorithm up by its name in a provider each time, and cost a
 * server two megabytes.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "store/sha256.h"
#include <errno.h>
#include <openssl/sha.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

int sha256(const void *data, size_t length, unsigned char hash[SHA256_SIZE])
{
    SHA256_CTX context;
    bool good = SHA256_Init(&context) == 1 && SHA256_Update(&context, data, length) == 1;
    return good && SHA256_Final(hash, &context) == 1 ? 0 : -EIO;
}

static int add_file(SHA256_CTX *context, int fd, off_t offset, off_t length)
{
    char block[16384];
    while (length > 0) {
        size_t wanted = length < (off_t)sizeof block ? (size_t)length : sizeof block;
        ssize_t count = pread(fd, block, wanted, offset);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 ? -errno : -ENODATA;
        if (SHA256_Update(context, block, (size_t)count) != 1)
            return -EIO;
        offset += count;
        length -= count;
    }
    return 0;
}

int sha256_file(int fd, off_t offset, off_t length, unsigned char hash[SHA256_SIZE])
{
    SHA256_CTX context;
    int status = SHA256_Init(&context) == 1 ? add_file(&context, fd, offset, length) : -EIO;
    return status == 0 && SHA256_Final(hash, &context) != 1 ? -EIO : status;
}

void sha256_hex(const unsigned char hash[SHA256_SIZE], char *text)
{
    for (size_t i = 0; i < SHA256_SIZE; i++)
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
}
