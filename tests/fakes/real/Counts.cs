// Answers each request, and says at its start how many CPUs .NET counts, and whether the server's collector runs.
using System;
using System.IO;
using System.Net;
using System.Net.Sockets;
using System.Runtime;
using System.Text;
using System.Threading;

static class Counts {
    static readonly byte[] Answer = Encoding.ASCII.GetBytes("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");

    static void Main(string[] arguments) {
        Console.WriteLine($"counts {Environment.ProcessorCount} {(GCSettings.IsServerGC ? "Server" : "Workstation")}");
        var listener = new TcpListener(IPAddress.Loopback, int.Parse(arguments[0]));
        listener.Start();
        while (true) {
            var client = listener.AcceptTcpClient();
            new Thread(() => Serve(client)) { IsBackground = true }.Start();
        }
    }

    static void Serve(TcpClient client) {
        var request = new byte[4096];
        try {
            using var stream = client.GetStream();
            while (stream.Read(request) > 0) {
                stream.Write(Answer);
            }
        } catch (IOException) {
        }
    }
}
