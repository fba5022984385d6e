# The driver of Perl's zygotes. Perl opens the script before anything else, runs what -M says, and only then reads the script. So the script
# on the zygote's command line is /dev/fd/3/main.pl, which Perl takes for fd 3 under the name main.pl, and this file is run by -M. It leaves
# a function behind and opens /.hotcell/read: the zygote forks where Perl reads fd 3, and each child, which is in its cell by then, calls that
# function first (src/cell/warm_perl.h). fd 3 is then the program's file, where a cold start has it, or the function puts it there.
#
# What always holds: no package, variable or entry of %INC is left behind. Where a cold start would find something that was not prepared
# for, the child execs Perl, which is what a cold start does.
delete @INC{ grep { $INC{$_} =~ m{/driver\.pl\z} } keys %INC };
open my $list, '<', '/proc/self/environ' or exit 1;
my @env = split /\0/, do { local $/; readline $list };
my ($first) = grep { $env[$_] =~ /\AHOTCELL_WARM=/ } 0 .. $#env;
delete @ENV{ map { /\A([^=]*)/ } splice @env, $first // @env };

# It holds on to itself: what is freed is work, for each child.
my $begin;
$begin = sub {
    my $usual = shift;
    delete $main::{__hotcell__};
    $^T = time;
    return $begin if $usual;    # else fd 3 is the block
    local ($_, $/, $!, $@);
    local $^F = 3;    # an fd up to this keeps its number when its handle is opened anew
    open my $script, '<&=', 3 or exit 125;
    my ($argc, $envc, undef, @words) = split /\0/, readline $script, -1;
    my @argv = splice @words, 0, $argc;
    my @env = splice @words, 0, $envc;
    %ENV = map { /\A([^=]*)=(.*)\z/s } reverse @env;
    my ($good, $first) = ("@argv[1 .. 3]" eq "-I$INC[0] -M5;\$|=1 $0", '');
    $good &&= open $script, '<', $0;
    if ($good) { # options in a first line are taken from the command line anew, which is not this one
        sysread $script, $first, 256;
        sysseek $script, 0, 0;
        $good = $first =~ m{\A#!\s*(?:\S*/)?(?:env[ \t]+)?perl(?:[ \t]+-w)?[ \t]*\r?\n} if substr($first, 0, 2) eq '#!';
    }
    fcntl $script, 2, 1 if $good or open $script, '<&=', 3;    # close-on-exec: nobody inherits the script
    exec { $argv[0] } @argv if not $good;
    @ARGV = @argv[4 .. $#argv];
};
*main::__hotcell__ = $begin;
delete $main::{__ANON__};
open my $none, '<', '/.hotcell/read';
$! = 0;
1;
