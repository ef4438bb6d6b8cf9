import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * The two sides in two JVMs, joined by Artery TCP. This JVM plays side a, and starts the JVM of side b, on the same
 * loopback or in the network namespace at the other end of a link.
 */
final class RemoteGame implements Game {
    private final Hall here;
    private final Peer there;

    private RemoteGame(Hall here, Peer there) {
        this.here = here;
        this.there = there;
    }

    static RemoteGame start(Options options) throws IOException {
        Peer there = Peer.start(otherSide(options));
        Hall here = Hall.ofSide(options, "a", options.addressA());
        String address = there.awaitReply();
        here.meet("b", address);
        there.ask("meet a " + here.address());
        return new RemoteGame(here, there);
    }

    private static ProcessBuilder otherSide(Options options) {
        List<String> prefix = options.overLink() ? List.of("nsenter", "--net=" + options.linkB(), "--") : List.of();
        List<String> arguments = new ArrayList<>(List.of("b", options.addressB()));
        arguments.addAll(Arrays.asList(options.arguments()));
        return ChildJvm.command(prefix, ChildJvm.sameOptions(), PeerMain.class, arguments);
    }

    @Override
    public void throwIn() {
        here.throwIn();
    }

    @Override
    public Totals totals() {
        return here.totals().plus(Totals.parse(there.ask("totals")));
    }

    @Override
    public void stop() {
        here.stop();
        there.ask("stop");
    }

    @Override
    public void close() {
        there.close();
        here.close();
    }
}
