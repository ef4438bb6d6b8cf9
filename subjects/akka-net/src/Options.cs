using System.Globalization;

namespace Powerband.Reflection;

/// <summary>The sentence in which impossible options are refused.</summary>
internal sealed class RefusedException(string message) : Exception(message);

/// <summary>The command line, checked. Impossible options are refused with a <see cref="RefusedException"/>.</summary>
internal sealed class Options
{
    private const int BallsMax = 1_000_000_000;
    private const string Bounded = "bounded:";

    private static readonly string[] Names =
    [
        "metrics-port", "pairs", "balls", "dispatcher", "parallelism", "pool-threads", "throughput", "mailbox", "message",
        "metrics", "statsd", "debug-log", "neighbours", "gc", "transport", "serializer",
    ];

    private readonly Dictionary<string, string> given = [];

    private Options(string[] arguments)
    {
        Arguments = arguments;
        for (var at = 0; at < arguments.Length; at += 2)
        {
            var name = arguments[at].StartsWith("--", StringComparison.Ordinal) ? arguments[at][2..] : "";
            if (!Names.Contains(name))
            {
                throw new RefusedException($"there is no option {arguments[at]}: --{string.Join(", --", Names)}");
            }

            given[name] = at + 1 < arguments.Length
                ? arguments[at + 1]
                : throw new RefusedException($"{arguments[at]} needs a value");
        }

        MetricsPort = Number("metrics-port", 0, 0, 65_535);
        Pairs = Number("pairs", 1, 1, 1_000_000);
        Balls = Number("balls", 6, 1, BallsMax);
        Dispatcher = Choice("dispatcher", "fork-join", "thread-pool", "task", "channel", "pinned");
        Parallelism = Number("parallelism", 8, 1, 10_000);
        PoolThreads = Number("pool-threads", 0, 0, 10_000);
        Throughput = Number("throughput", 100, 1, int.MaxValue);
        MailboxCapacity = Capacity(given.GetValueOrDefault("mailbox", "unbounded"));
        ReusesMessage = Choice("message", "allocated", "reused") == "reused";
        Metrics = Choice("metrics", "off", "datagram", "prometheus");
        (StatsdHost, StatsdPort) = Address("statsd");
        DebugLog = Choice("debug-log", "false", "true") == "true";
        Neighbours = Number("neighbours", 0, 0, 1_000);
        ServerCollector = Choice("gc", "workstation", "server") == "server";
        IsRemote = Choice("transport", "local", "remote") == "remote";
        Serializer = Choice("serializer", "json", "binary");
        if (IsRemote && Metrics == "prometheus")
        {
            throw new RefusedException("--transport remote does not run with --metrics prometheus: the page shows the counters "
                + "of one process only; write off or datagram");
        }

        if (Metrics == "datagram" && StatsdPort == 0)
        {
            throw new RefusedException("--metrics datagram needs somewhere to send to: --statsd HOST:PORT");
        }

        if (Dispatcher == "channel" && Parallelism == 1)
        {
            throw new RefusedException("--dispatcher channel does not run with --parallelism 1: Akka.NET's channel executor "
                + "then starts nothing; write 2 or more");
        }

        if ((long)Pairs * Balls > BallsMax)
        {
            throw new RefusedException($"--pairs {Pairs} with --balls {Balls} each are more than {BallsMax} balls");
        }
    }

    /// <summary>The arguments as given.</summary>
    internal string[] Arguments { get; }

    /// <summary>True if the two sides of each pair are in two processes.</summary>
    internal bool IsRemote { get; }

    /// <summary>The serializer of balls between two processes.</summary>
    internal string Serializer { get; }

    internal int MetricsPort { get; }

    internal int Pairs { get; }

    internal int Balls { get; }

    internal string Dispatcher { get; }

    internal int Parallelism { get; }

    /// <summary>Threads of .NET's pool; 0: .NET's own choice.</summary>
    internal int PoolThreads { get; }

    internal int Throughput { get; }

    /// <summary>Capacity of a mailbox; 0: unbounded.</summary>
    internal int MailboxCapacity { get; }

    internal bool ReusesMessage { get; }

    internal string Metrics { get; }

    internal string StatsdHost { get; }

    internal int StatsdPort { get; }

    internal bool DebugLog { get; }

    internal int Neighbours { get; }

    internal bool ServerCollector { get; }

    internal string Collector => ServerCollector ? "server" : "workstation";

    internal static Options Parse(string[] arguments) => new(arguments);

    private static int Capacity(string mailbox)
    {
        if (mailbox.StartsWith(Bounded, StringComparison.Ordinal))
        {
            return Parsed("--mailbox " + Bounded, mailbox[Bounded.Length..], 1, int.MaxValue);
        }

        return mailbox == "unbounded" ? 0 : throw new RefusedException($"--mailbox {mailbox}: write unbounded or bounded:N");
    }

    private static int Parsed(string before, string text, int least, int most)
    {
        if (int.TryParse(text, NumberStyles.None, CultureInfo.InvariantCulture, out var number)
            && number >= least && number <= most)
        {
            return number;
        }

        throw new RefusedException($"{before}{text} is no whole number from {least} to {most}");
    }

    private int Number(string name, int absent, int least, int most) =>
        given.TryGetValue(name, out var text) ? Parsed($"--{name} ", text, least, most) : absent;

    /// <summary>Checks that an option is one of these choices; the first is the default.</summary>
    private string Choice(string name, params string[] choices)
    {
        var chosen = given.GetValueOrDefault(name, choices[0]);
        return choices.Contains(chosen)
            ? chosen
            : throw new RefusedException($"--{name} {chosen}: write one of {string.Join(", ", choices)}");
    }

    private (string Host, int Port) Address(string name)
    {
        var text = given.GetValueOrDefault(name, "127.0.0.1:0");
        var colon = text.LastIndexOf(':');
        return colon > 0
            ? (text[..colon], Parsed($"--{name} ", text[(colon + 1)..], 0, 65_535))
            : throw new RefusedException($"--{name} {text}: write HOST:PORT");
    }
}
