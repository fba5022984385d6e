/*
 * SHA-256, by OpenSSL. The library reads its configuration when it is first used: store_open and audit_open both use it
 * once, so that nothing is read after the process has sealed itself.
 */
#include "store/sha256.h"
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <unistd.h>

int sha256(const void *data, size_t length, unsigned char hash[SHA256_SIZE])
{
    return EVP_Digest(data, length, hash, NULL, EVP_sha256(), NULL) == 1 ? 0 : -EIO;
}

static int add_file(EVP_MD_CTX *context, int fd, off_t offset, off_t length)
{
    char block[16384];
    while (length > 0) {
        size_t wanted = length < (off_t)sizeof block ? (size_t)length : sizeof block;
        ssize_t count = pread(fd, block, wanted, offset);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 ? -errno : -ENODATA;
        if (EVP_DigestUpdate(context, block, (size_t)count) != 1)
            return -EIO;
        offset += count;
        length -= count;
    }
    return 0;
}

int sha256_file(int fd, off_t offset, off_t length, unsigned char hash[SHA256_SIZE])
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (context == NULL)
        return -ENOMEM;
    int status = EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1 ? 0 : -EIO;
    if (status == 0)
        status = add_file(context, fd, offset, length);
    if (status == 0 && EVP_DigestFinal_ex(context, hash, NULL) != 1)
        status = -EIO;
    EVP_MD_CTX_free(context);
    return status;
}

void sha256_hex(const unsigned char hash[SHA256_SIZE], char *text)
{
    for (size_t i = 0; i < SHA256_SIZE; i++)
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
}
