/* Numbers as bytes, little-endian, wherever they stand. */
#ifndef HC_STORE_BYTES_H
#define HC_STORE_BYTES_H

#include <stddef.h>
#include <stdint.h>

static inline void bytes_put(unsigned char *bytes, uint64_t number, size_t size)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(number >> (8 * i));
}

static inline uint64_t bytes_get(const unsigned char *bytes, size_t size)
{
    uint64_t number = 0;
    for (size_t i = size; i > 0; i--)
        number = number << 8 | bytes[i - 1];
    return number;
}

#endif
