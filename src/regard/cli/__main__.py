from regard.cli.main import run

run()
