import java.io.Serial;
import java.io.Serializable;
import java.util.Random;

/**
 * A message in play: how often it was received, and a text that it carries along. `count` is written only where a ball is
 * sent on itself, by the player that has just received it; handing it over orders that before the next player's reading.
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

    /** Another ball with one receipt more. */
    Ball next() {
        return new Ball(count + 1, filler);
    }

    /** This ball, with one receipt more. */
    Ball again() {
        count++;
        return this;
    }

    /** ASCII text of words in random order, the same in each run: it compresses as prose does, to about half. */
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
