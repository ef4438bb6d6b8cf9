import java.io.Serial;
import java.io.Serializable;
import java.util.Random;

/**
 * A message in play, which counts how often it was received and carries a text. `count` is written only when the ball
 * itself is sent on, by the player that has just received it; handing the ball over orders this write before the next
 * player's read.
 */
final class Ball implements Serializable {
    @Serial
    private static final long serialVersionUID = 1;

    long count;
    String filler;

    /** For deserialization. */
    Ball() {
        this(0, "");
    }

    Ball(long count, String filler) {
        this.count = count;
        this.filler = filler;
    }

    /** Makes another ball with one more receipt. */
    Ball next() {
        return new Ball(count + 1, filler);
    }

    /** Adds a receipt to this ball and returns it. */
    Ball again() {
        count++;
        return this;
    }

    /** Random words as ASCII text, the same in each run. It compresses to about half, like prose. */
    static String filler(int bytes) {
        Random random = new Random(bytes);
        StringBuilder text = new StringBuilder(bytes + 16);
        while (text.length() < bytes) {
            for (int letters = 2 + random.nextInt(8); letters > 0; letters--) {
                text.append((char) ('a' + random.nextInt(26) * random.nextInt(26) / 26));
            }
            text.append(' ');
        }
        return text.substring(0, bytes);
    }
}
