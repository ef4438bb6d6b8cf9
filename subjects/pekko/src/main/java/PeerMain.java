import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import sun.misc.Signal;

/** The JVM of the other side: obeys commands of {@link Peer} on stdin, and ends when stdin does. */
public final class PeerMain {
    private PeerMain() { }

    public static void main(String[] arguments) throws IOException {
        // A signal to the whole group is meant for the first JVM, which then needs the ball counts.
        Signal.handle(new Signal("TERM"), signal -> { });
        Signal.handle(new Signal("INT"), signal -> { });
        PrintStream replies = System.out;
        System.setOut(System.err);

        Options options = Options.parse(Arrays.copyOfRange(arguments, 2, arguments.length));
        Hall hall = Hall.ofSide(options, arguments[0], arguments[1]);
        reply(replies, hall.address());
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String command = commands.readLine(); command != null; command = commands.readLine()) {
            reply(replies, obey(hall, command.split(" ")));
        }
        Runtime.getRuntime().halt(0);
    }

    private static String obey(Hall hall, String[] command) {
        switch (command[0]) {
            case "meet" -> hall.meet(command[1], command[2]);
            case "throw" -> hall.throwIn();
            case "stop" -> hall.stop();
            case "close" -> hall.close();
            case "totals" -> {
                return hall.totals().line();
            }
            default -> throw new IllegalArgumentException(command[0]);
        }
        return "done";
    }

    private static void reply(PrintStream replies, String text) {
        replies.println(Peer.REPLY + text);
        replies.flush();
    }
}
