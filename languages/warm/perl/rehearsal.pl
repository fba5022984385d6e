# What most programs do: see src/cell/warm_pages.h.
my %count;
$count{length $_}++ for map { "word$_" } 1 .. 20;
my $text = join ', ', map { sprintf '%s=%d', $_, $count{$_} } sort keys %count;
$text =~ s/(\d+)=(\d+)/$2 of $1/g;
eval { die { text => $text } };
print "$@->{text}\n";
print "42\n";
