import java.time.Duration;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Times as powerband writes them: {@code 500us}, {@code 20ms}, {@code 3s}, {@code 1m}, {@code 1h}. */
final class Times {
    private static final Pattern TIME = Pattern.compile("(\\d+(?:\\.\\d+)?)(ns|us|ms|s|m|h)");

    private Times() { }

    static Duration parse(String text) {
        Matcher matcher = TIME.matcher(text);
        if (!matcher.matches()) {
            throw new IllegalArgumentException(text + " is no time: write 500us, 20ms or 3s");
        }
        long unitNs = switch (matcher.group(2)) {
            case "ns" -> 1L;
            case "us" -> 1_000L;
            case "ms" -> 1_000_000L;
            case "s" -> 1_000_000_000L;
            case "m" -> 60_000_000_000L;
            default -> 3_600_000_000_000L;
        };
        return Duration.ofNanos(Math.round(Double.parseDouble(matcher.group(1)) * unitNs));
    }
}
