import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.nio.file.Files;
import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.NetworkConnectionLimit;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.util.Callback;
import org.eclipse.jetty.util.thread.QueuedThreadPool;

/**
 * Tomcat or Jetty with a planted limit: Containers KIND PORT PLANT LIMIT THREADS CONNECTIONS. It takes so many connections
 * of clients, 0: what it takes by itself. The plants `query`, `row` and `compute` ask the database at DATABASE over a
 * pool of LIMIT connections.
 */
public class Containers {
    static final String CHANGE = "with changed as (update counter set n = n + 1 returning n) ";
    static final Map<String, String> QUERIES = Map.of(
        "query", "select pg_sleep(0.02)",
        "row", CHANGE + "select pg_sleep(0.004) from changed",
        "compute", "select count(*) from generate_series(1, 20000)");

    static Callable<?> work(String plant, int limit) {
        String query = QUERIES.get(plant);
        if (query == null) {
            Work work = new Work(plant, limit);
            return () -> {
                work.run();
                return null;
            };
        }
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl("jdbc:" + System.getenv("DATABASE"));
        config.setMaximumPoolSize(limit);
        HikariDataSource database = new HikariDataSource(config);
        return () -> {
            try (var connection = database.getConnection(); var statement = connection.createStatement()) {
                return statement.execute(query);
            }
        };
    }

    static void tomcat(int port, Callable<?> work, int threads, int connections) throws Exception {
        Tomcat tomcat = new Tomcat();
        String folder = Files.createTempDirectory("planted-tomcat").toString();
        tomcat.setBaseDir(folder);
        Connector connector = new Connector("HTTP/1.1");
        connector.setPort(port);
        connector.setProperty("address", "127.0.0.1");
        connector.setProperty("maxThreads", String.valueOf(threads));
        connector.setProperty("acceptCount", "511");
        if (connections > 0) {
            connector.setProperty("maxConnections", String.valueOf(connections));
        }
        tomcat.setConnector(connector);
        var context = tomcat.addContext("", folder);
        Tomcat.addServlet(context, "work", new HttpServlet() {
            @Override
            protected void doGet(HttpServletRequest request, HttpServletResponse answer) throws java.io.IOException {
                try {
                    work.call();
                } catch (Exception failed) {
                    answer.setStatus(500);
                }
                answer.getOutputStream().print("ok\n");
            }
        });
        context.addServletMappingDecoded("/", "work");
        tomcat.start();
    }

    /** One of its threads selects; it accepts by one of its own. */
    static void jetty(int port, Callable<?> work, int threads, int connections) throws Exception {
        QueuedThreadPool pool = new QueuedThreadPool(threads + 2, threads + 2);
        pool.setReservedThreads(0);
        Server server = new Server(pool);
        ServerConnector connector = new ServerConnector(server, 1, 1);
        connector.setHost("127.0.0.1");
        connector.setPort(port);
        connector.setAcceptQueueSize(511);
        server.addConnector(connector);
        if (connections > 0) {
            server.addBean(new NetworkConnectionLimit(connections, connector));
        }
        server.setHandler(new Handler.Abstract() {
            @Override
            public boolean handle(Request request, Response response, Callback callback) throws Exception {
                work.call();
                Content.Sink.write(response, true, "ok\n", callback);
                return true;
            }
        });
        server.start();
    }

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[1]);
        int threads = Integer.parseInt(args[4]), connections = Integer.parseInt(args[5]);
        Callable<?> work = work(args[2], Integer.parseInt(args[3]));
        if (args[0].equals("tomcat")) {
            tomcat(port, work, threads, connections);
        } else {
            jetty(port, work, threads, connections);
        }
    }
}
