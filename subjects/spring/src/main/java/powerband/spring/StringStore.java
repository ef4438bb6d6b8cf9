package powerband.spring;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.random.RandomGenerator;
import javax.sql.DataSource;
import org.springframework.jdbc.core.ConnectionCallback;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.stereotype.Component;

/**
 * The table of random strings. The first rows are the same in every run; later ones are not. Each insert is a
 * transaction of its own, on a connection taken from the pool and given back, as with a repository's {@code save}.
 */
@Component
class StringStore {
    private static final String CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    private static final int LENGTH_MIN = 3;
    private static final int LENGTH_MAX = 50;
    private static final long SEED = 1;
    private static final String INSERT = "insert into random_string (content) values (?)";

    private final JdbcTemplate jdbc;
    private final Duration insertDelay;

    StringStore(DataSource database, SpringSubject.Options options) {
        jdbc = new JdbcTemplate(database);
        insertDelay = options.insertDelay();
        jdbc.execute("create table if not exists random_string ("
                + "id bigint generated always as identity primary key, content varchar(" + LENGTH_MAX + ") not null)");
        fill(options.rows());
    }

    List<String> all() {
        return jdbc.queryForList("select content from random_string", String.class);
    }

    void empty() {
        jdbc.update("delete from random_string");
    }

    /**
     * Inserts new random strings one after another. A delayed insert holds its connection meanwhile, as one does that
     * the database answers slowly.
     */
    void insertRandom(int count) {
        RandomGenerator random = new SplittableRandom();
        for (int done = 0; done < count; done++) {
            String text = random(random);
            jdbc.execute((ConnectionCallback<Integer>) connection -> insert(connection, text));
        }
    }

    private int insert(Connection connection, String text) throws SQLException {
        if (!insertDelay.isZero()) {
            try {
                Thread.sleep(insertDelay);
            } catch (InterruptedException stop) {
                Thread.currentThread().interrupt();
                throw new SQLException("interrupted: the server stops", stop);
            }
        }
        try (PreparedStatement statement = connection.prepareStatement(INSERT)) {
            statement.setString(1, text);
            return statement.executeUpdate();
        }
    }

    private void fill(int rows) {
        RandomGenerator random = new SplittableRandom(SEED);
        List<Object[]> texts = new ArrayList<>(rows);
        for (int row = 0; row < rows; row++) {
            texts.add(new Object[] {random(random)});
        }
        jdbc.execute("truncate table random_string"); // deleted rows would slow PostgreSQL down until a vacuum
        jdbc.batchUpdate(INSERT, texts);
    }

    private static String random(RandomGenerator random) {
        int length = random.nextInt(LENGTH_MIN, LENGTH_MAX + 1);
        StringBuilder text = new StringBuilder(length);
        for (int at = 0; at < length; at++) {
            text.append(CHARACTERS.charAt(random.nextInt(CHARACTERS.length())));
        }
        return text.toString();
    }
}
