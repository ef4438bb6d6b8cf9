import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * The other side's JVM, as seen from this one: takes one command and gives one reply at a time, as lines over stdin and
 * stdout. This JVM prints whatever else it prints. If it ends by itself, this JVM ends with its exit code.
 */
final class Peer {
    static final String REPLY = "reply ";
    private static final long PATIENCE_S = 60;

    private final Process process;
    private final Writer commands;
    private final BlockingQueue<String> replies = new LinkedBlockingQueue<>();
    private volatile boolean closing;

    private Peer(Process process) {
        this.process = process;
        this.commands = new OutputStreamWriter(process.getOutputStream(), StandardCharsets.UTF_8);
        Thread.ofPlatform().name("other-side").daemon().start(this::read);
    }

    static Peer start(ProcessBuilder command) throws IOException {
        return new Peer(command.start());
    }

    /** Sends a command and returns its reply. Raises IllegalStateException if none comes. */
    synchronized String ask(String command) {
        try {
            commands.write(command + "\n");
            commands.flush();
        } catch (IOException gone) {
            throw new IllegalStateException("the JVM of the other side takes no command: " + gone.getMessage(), gone);
        }
        return awaitReply();
    }

    /** Waits for the next reply. The first one comes without a command, once the JVM can be reached. */
    synchronized String awaitReply() {
        try {
            String reply = replies.poll(PATIENCE_S, TimeUnit.SECONDS);
            if (reply != null) {
                return reply;
            }
        } catch (InterruptedException stop) {
            Thread.currentThread().interrupt();
        }
        throw new IllegalStateException("the JVM of the other side does not answer");
    }

    void close() {
        closing = true;
        ask("close");
        try {
            commands.close();
        } catch (IOException gone) {
            // It has ended already.
        }
    }

    private void read() {
        try (BufferedReader lines = new BufferedReader(
                new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (line.startsWith(REPLY)) {
                    replies.add(line.substring(REPLY.length()));
                } else {
                    System.out.println(line);
                }
            }
            int code = process.waitFor();
            if (!closing) {
                System.err.println("pekko: the JVM of the other side ended by itself, exit code " + code);
                Runtime.getRuntime().halt(code == 0 ? 1 : code);
            }
        } catch (IOException | InterruptedException gone) {
            System.err.println("pekko: the JVM of the other side cannot be heard: " + gone);
            Runtime.getRuntime().halt(1);
        }
    }
}
