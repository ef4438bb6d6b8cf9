using System.Net.Sockets;
using System.Text;
using Prometheus;

namespace Powerband.Reflection;

/// <summary>
/// What a player does for each message to have it counted elsewhere: nothing; two counters as datagrams, which the
/// player sends through one socket shared by all; or two counters of prometheus-net, shared by all, too.
/// </summary>
internal sealed class Updates
{
    private static readonly string[] Counters = ["reflection.received", "reflection.player.received"];

    private Updates(Action<Seat>? each, CollectorRegistry? registry)
    {
        Each = each;
        Registry = registry;
    }

    /// <summary>Called by the player of this seat for each message; null if there is nothing to do.</summary>
    internal Action<Seat>? Each { get; }

    /// <summary>The registry of prometheus-net, to be shown on the metrics page; null without it.</summary>
    internal CollectorRegistry? Registry { get; }

    internal static Updates Of(Options options) => options.Metrics switch
    {
        "datagram" => new Updates(Datagrams(options.StatsdHost, options.StatsdPort), null),
        "prometheus" => OfPrometheus(Metrics.NewCustomRegistry()),
        _ => new Updates(null, null),
    };

    private static Action<Seat> Datagrams(string host, int port)
    {
        var socket = new Socket(AddressFamily.InterNetwork, SocketType.Dgram, ProtocolType.Udp);
        socket.Connect(host, port);
        var datagrams = Counters.Select(name => Encoding.ASCII.GetBytes(name + ":1|c")).ToArray();
        return seat =>
        {
            foreach (var datagram in datagrams)
            {
                seat.Add(Count.Updates, 1);
                try
                {
                    socket.Send(datagram);
                }
                catch (SocketException)
                {
                    seat.Add(Count.UpdateErrors, 1);
                }
            }
        };
    }

    private static Updates OfPrometheus(CollectorRegistry registry)
    {
        var factory = Metrics.WithCustomRegistry(registry);
        var received = factory.CreateCounter("reflection_received_total", "Balls received, counted by prometheus-net");
        var byPlayers = factory.CreateCounter(
            "reflection_player_received_total", "Balls received by players, counted by prometheus-net");
        return new Updates(
            seat =>
            {
                seat.Add(Count.Updates, 2);
                received.Inc();
                byPlayers.Inc();
            },
            registry);
    }
}
