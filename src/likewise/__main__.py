from likewise.cli.main import main

main()
