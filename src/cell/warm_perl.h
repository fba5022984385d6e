/*
 * The part of Perl's driver that is not in Perl (languages/warm/perl/driver.pl is the other).
 *
 * Perl runs the driver before it reads its program, and frees the driver's code where it ends. In a child that would be
 * work of a tenth of a millisecond, for each program. So the zygote does not fork in the driver: that leaves a function
 * in FUNCTION and opens WARM_READ, and the zygote forks where Perl next reads its program, which is fd 3 (warm.h).
 */
#ifndef HC_CELL_WARM_PERL_H
#define HC_CELL_WARM_PERL_H

#include <stdbool.h>

/* In the zygote, before it forks. False: this is no Perl that can be called. */
bool warm_perl_look_up(void);
/* In a child that has its program. Calls the driver's function, with a word where the program is one of the usual. */
void warm_perl_begin(bool usual);

#endif
