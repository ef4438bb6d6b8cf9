# A Rack application with one planted limit, named by PLANT.
LOCK = Mutex.new
run lambda { |_env|
  if ENV["PLANT"] == "lock"
    LOCK.synchronize { sleep 0.001 }
  else
    sleep 0.02
  end
  [200, { "content-type" => "text/plain", "content-length" => "3" }, ["ok\n"]]
}
