# The driver of Perl's zygotes. Perl opens the script before anything else, runs what -M says, and only then reads the script. So the script
# on the zygote's command line is /dev/fd/3/main.pl, which Perl takes for fd 3 under the name main.pl, and this file is run by -M. It calls
# fork() once; that call returns only in children, each of which is in its cell (src/cell/warm.h). The child puts the program's file in the
# place of fd 3, where a cold start has it, and returns: Perl itself reads and runs it.
#
# What always holds: no package, variable or entry of %INC is left behind. Where a cold start would find something that was not prepared
# for, the child execs Perl, which is what a cold start does.
{
    my ($own) = grep { $INC{$_} =~ m{/driver\.pl\z} } keys %INC;
    my @folders = @INC;
    my ($plain, @argv, @extra) = ('', $^X, "-I$folders[0]", '-M5;$|=1', $0); # what most programs are given: that is compared as a whole
    if (open my $list, '<', '/proc/self/environ') {
        my @env = split /\0/, do { local $/; readline $list };
        my ($first) = grep { $env[$_] =~ /\AHOTCELL_WARM=/ } 0 .. $#env;
        @extra = map { /\A([^=]*)/ } splice @env, $first // @env;
        $plain = join "\0", scalar @argv, scalar @env, readlink '/proc/self/cwd', @argv, @env, '';
    }
    exit 1 if fork;
    delete $INC{$own};

    $! = 0;
    local ($_, $/, $!, $@);
    local $^F = 3;    # an fd up to this keeps its number when its handle is opened anew
    open my $script, '<&=', 3 or exit 125;
    my $block = readline $script;
    my ($good, $first) = ($block eq $plain, '');
    if ($good) {
        delete @ENV{@extra};
    }
    else {
        my ($argc, $envc, undef, @words) = split /\0/, $block, -1;
        @argv = splice @words, 0, $argc;
        my @env = splice @words, 0, $envc;
        %ENV = map { /\A([^=]*)=(.*)\z/s } reverse @env;
        $good = "@argv[1 .. 3]" eq "-I$folders[0] -M5;\$|=1 $0";
    }
    $good &&= open $script, '<', $0;
    if ($good) { # options in a first line are taken from the command line anew, which is not this one
        sysread $script, $first, 256;
        sysseek $script, 0, 0;
        $good = $first =~ m{\A#!\s*(?:\S*/)?(?:env[ \t]+)?perl(?:[ \t]+-w)?[ \t]*\r?\n} if substr($first, 0, 2) eq '#!';
    }
    if (not $good) {
        fcntl $script, 2, 1 if open $script, '<&=', 3;    # close-on-exec: Perl itself has it open as well
        exec { $argv[0] } @argv;
    }
    @ARGV = @argv[4 .. $#argv];
    $^T = time;
}
1;
