/* See volume.h. */
#include "run/volume.h"

#include <errno.h>
#include <string.h>

int volume_check_name(const char *name, struct hc_err *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t length = strspn(name, letters);
    if (length > 0 && length < VOLUME_NAME_SIZE && name[length] == '\0' && name[0] != '_' && name[0] != '-')
        return 0;
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "\"%.80s\" cannot be the name of a volume", name);
    hc_err_field(err, "name");
    return hc_err_remedy(err, "use 1 to %d small letters, digits, \"_\" and \"-\", a letter or digit first",
                         VOLUME_NAME_SIZE - 1);
}
