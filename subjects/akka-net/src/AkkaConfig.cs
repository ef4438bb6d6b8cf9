using Akka.Configuration;

namespace Powerband.Reflection;

/// <summary>
/// Turns the options into Akka's configuration: the players' dispatcher and mailbox, and the log. Pure.
/// </summary>
internal static class AkkaConfig
{
    internal const string Dispatcher = "reflection-dispatcher";
    internal const string Mailbox = "reflection-mailbox";

    /// <summary>Balls are counted before the actor system ends, so nothing but this program may end it.</summary>
    internal static Config Of(Options options) => ConfigurationFactory.ParseString($$"""
        akka {
          loglevel = {{(options.DebugLog ? "DEBUG" : "INFO")}}
          loggers = ["{{Name(typeof(LogFile))}}"]
          log-dead-letters = off
          log-dead-letters-during-shutdown = off
          coordinated-shutdown.run-by-clr-shutdown-hook = off
          channel-scheduler { parallelism-min = {{options.Parallelism}}, parallelism-max = {{options.Parallelism}} }
        }
        {{(options.IsRemote ? Remote(options) : "")}}
        {{Dispatcher}} {
          {{Kind(options)}}
          throughput = {{options.Throughput}}
        }
        {{Mailbox}} {
          {{Queue(options)}}
        }
        """);

    /// <summary>
    /// Remoting. Uses Akka.NET's own serializer (Newtonsoft's JSON) unless the hand-written one is asked for.
    /// </summary>
    private static string Remote(Options options) => "akka.actor.provider = remote\n"
        + "akka.remote.dot-netty.tcp { hostname = 127.0.0.1, port = 0 }\n"
        + (options.Serializer == "json" ? "" : $$"""
            akka.actor {
              serializers.ball = "{{Name(typeof(BallSerializer))}}"
              serialization-bindings { "{{Name(typeof(Ball))}}" = ball }
            }
            """);

    private static string Name(Type type) => $"{type.FullName}, {type.Assembly.GetName().Name}";

    private static string Kind(Options options) => options.Dispatcher switch
    {
        "fork-join" => "type = ForkJoinDispatcher\ndedicated-thread-pool { thread-count = " + options.Parallelism
            + "\ndeadlock-timeout = 3s\nthreadtype = background }",
        "thread-pool" => "type = Dispatcher",
        "task" => "type = TaskDispatcher",
        "channel" => "type = Dispatcher\nexecutor = channel-executor\nchannel-executor.priority = normal",
        "pinned" => "type = PinnedDispatcher",
        _ => throw new InvalidOperationException(options.Dispatcher),
    };

    /// <summary>The mailbox. A full one refuses a ball at once: the ball becomes a dead letter.</summary>
    private static string Queue(Options options) => options.MailboxCapacity == 0
        ? "mailbox-type = \"Akka.Dispatch.UnboundedMailbox, Akka\""
        : "mailbox-type = \"Akka.Dispatch.BoundedMailbox, Akka\"\nmailbox-push-timeout-time = 0s\nmailbox-capacity = "
            + options.MailboxCapacity;
}
